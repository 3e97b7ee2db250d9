from __future__ import annotations

from pathlib import Path

import pytest
from fedsage.custom import Method, load_method

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import Outcome, fedsage
from fedsage.protocol.messages import Ask, ClassifierUpdate
from fedsage.protocol.owner import DataOwner
from fedsage.runs.run import run

EXAMPLE = Path(__file__).parent.parent / "examples" / "my_method.py"
FEW = {"classifier": {"rounds_c": 2, "selection": "last"}}


class Lazy(DataOwner):
    """Sends back what it got."""

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        phi = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        return ClassifierUpdate(phi, {}, 1.0, 0.0)


def test_an_owner_of_ones_own_is_asked_in_place_of_ours(
    graph: Graph, owners: Partition
) -> None:
    lazy = run(owners, Method("lazy", owner=Lazy), evaluate_on=graph, settings=FEW)
    assert lazy.record.method == "lazy"
    assert lazy.history[-1].loss == 0
    ours = run(owners, Method("same"), evaluate_on=graph, settings=FEW)
    assert ours.record.model_sha256 == run(owners, "fedsage", settings=FEW).record.model_sha256
    assert ours.record.model_sha256 != lazy.record.model_sha256


def test_a_loop_of_ones_own_is_run_in_place_of_ours(graph: Graph, owners: Partition) -> None:
    def half(engine, classifier, *, rounds_c, **more) -> Outcome:  # type: ignore[no-untyped-def]
        return fedsage(engine, classifier, rounds_c=rounds_c // 2, **more)

    assert len(run(owners, Method("half", train=half), settings=FEW).history) == 1


def test_the_example_s_pull_is_felt_and_vanishes_with_mu(
    owners: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_only = {
        "run": {"kernel": "torch"},
        "classifier": FEW["classifier"] | {"batch_size": 4},
    }
    plain = run(owners, "fedsage", settings=torch_only).models[0].phi
    gaps = []
    for mu in (0.0, 10.0):
        method = load_method(str(EXAMPLE))
        monkeypatch.setitem(method.owner.local_update_c.__globals__, "MU", mu)
        phi = run(owners, method, settings=torch_only).models[0].phi
        gaps.append(max(float((phi[name] - plain[name]).abs().max()) for name in phi))
    assert gaps[0] < 1e-5 < 1e-3 < gaps[1]


def test_files_without_a_method_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(ConfigError, match=r"has no METHOD of type fedsage\.Method"):
        load_method(str(empty))
    with pytest.raises(ConfigError, match="no such file"):
        load_method(str(tmp_path / "none.py"))
