"""Every equation of the paper that is built can be found by name, and says where it is from."""

from __future__ import annotations

from importlib import import_module

import pytest

TABLE = [
    ("Sec. 3.1", "fedsage.graph.partition", "partition"),
    ("Sec. 3.1", "fedsage.graph.partition", "missing_links"),
    ("Sec. 3.1", "fedsage.evaluation.evaluate", "aggregated_risk"),
    ("Eq. (1)", "fedsage.models.graphsage", "SageLayer.forward"),
    ("Eq. (2)", "fedsage.models.losses", "classification_loss"),
    ("Eq. (3)", "fedsage.models.neighgen", "DGen.forward"),
    ("Eq. (3)", "fedsage.models.neighgen", "FGen.forward"),
    ("Eq. (3)", "fedsage.models.neighgen", "sample_rows"),
    ("Sec. 4.1", "fedsage.graph.mend", "impair"),
    ("Eq. (4)", "fedsage.models.losses", "degree_loss"),
    ("Eq. (4)", "fedsage.models.losses", "feature_loss"),
    ("Eq. (4)", "fedsage.models.losses", "neighgen_loss"),
    ("Sec. 4.1", "fedsage.graph.mend", "mend"),
    ("Eq. (5)", "fedsage.models.losses", "joint_loss"),
    ("Eq. (6)", "fedsage.models.losses", "cross_subgraph_feature_loss"),
    ("Alg. 1, lines 2 to 5", "fedsage.methods", "fedsage_plus"),
    ("Alg. 1, lines 2 and 3", "fedsage.mending.neighgen", "by_neighgen"),
    ("Procedure A", "fedsage.mending.neighgen", "server_execution_for_gen"),
    ("Procedure C", "fedsage.mending.neighgen", "local_request"),
    ("Procedure D", "fedsage.mending.neighgen", "feed_forward"),
    ("Procedure E", "fedsage.mending.neighgen", "update_neighgen"),
    ("Sec. 3.2", "fedsage.methods", "fedsage"),
    ("Definition of GNTK", "fedsage.theory.gntk", "gntk"),
    ("Step 1 of the appendix", "fedsage.theory.gntk", "aggregate"),
    ("Step 2 of the appendix", "fedsage.theory.gntk", "relu_covariance"),
    ("Step 2 of the appendix", "fedsage.theory.gntk", "relu_covariance_dot"),
    ("Theorem on the generalization bound", "fedsage.theory.bound", "generalization_bound"),
    ("Lemma on", "fedsage.theory.bound", "label_norm_bound"),
    ("Lemma on", "fedsage.theory.bound", "trace_bound"),
    ("Procedure B", "fedsage.protocol.server", "server_execution_for_c"),
    ("Procedure B", "fedsage.protocol.server", "average"),
    ("Procedure F", "fedsage.protocol.owner", "DataOwner.local_update_c"),
]


@pytest.mark.parametrize(("place", "module", "name"), TABLE, ids=[row[2] for row in TABLE])
def test_the_function_exists_and_names_its_place(place: str, module: str, name: str) -> None:
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    found = getattr(found, "function", found)  # a procedure speaks for its function
    first = (found.__doc__ or "").split("\n\n")[0]
    assert place in first
