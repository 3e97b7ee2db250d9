"""Answers for nodes that came after a run, on the graph that the run keeps."""

from __future__ import annotations

import numpy as np

from fedsage.data.new_rows import NewRows
from fedsage.errors import ConfigError
from fedsage.graph.attach import Generated, mend
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.surroundings import with_surroundings
from fedsage.mending.way import WAYS, NewNodes
from fedsage.models.classifier import NodeClassifier
from fedsage.rng import generator
from fedsage.runs.predictions import Columns, table_of
from fedsage.runs.stored_graph import Answering, shares_on
from fedsage.shapes import NodeIds
from fedsage.tables.schema import Schema
from fedsage.tables.tables import graph_of


def schema_for_new(model: NodeClassifier) -> Schema:
    """How to read new rows; refuses a model that was not trained on tables."""
    if model.schema is None or model.scale is None:
        raise ConfigError(
            "--new takes tables, but the model was trained on a graph without a schema. Give "
            "a whole graph with --data."
        )
    return model.schema


def answers_for_new(model: NodeClassifier, held: Answering, new: NewRows) -> Columns:
    """The table of predictions for new rows.

    Only neighborhoods of the new nodes are computed. They get generated neighbors as in the
    run, where its way of mending can make some.
    """
    assert model.scale is not None  # schema_for_new saw to it
    rows = model.fitting(graph_of(new.tables, model.scale))
    reach = model.module().reach
    if reach is not None and held.mended_by in ("neighgen", "shared"):
        reach = max(reach, len(held.neighgen.widths))

    def around(graph: Graph) -> Graph:
        given = rows.x, rows.y, new.among, new.into, reach, new.weights
        return with_surroundings(graph, *given)

    plain, mended = around(held.with_known()), None
    nodes = np.arange(rows.num_nodes)
    if held.rests_on is not None:
        mended = around(held.rests_on)
        if (made := generated_for(held, plain, nodes, new.remote)) is not None:
            mended = mend(mended, made)
    shares = shares_on(held, model, plain, mended, nodes)
    visible = plain.degrees[nodes]
    attached = np.zeros_like(visible) if mended is None else mended.degrees[nodes] - visible
    return table_of(new.tables.ids, shares, model.class_names, rows, visible, attached)


def generated_for(
    held: Answering, plain: Graph, nodes: NodeIds, remote: RemoteLinks
) -> Generated | None:
    """Neighbors for new nodes, by the way of the run; a user's own way makes none here."""
    entry = WAYS.ours().get(held.mended_by)
    if entry is None or entry.thing.renew is None:
        return None
    stream = generator(held.seed, "new nodes", held.number)
    settings = held.mend, held.neighgen
    return entry.thing.renew(
        NewNodes(plain, nodes, remote, held.graph, held.remembered, *settings, stream)
    )
