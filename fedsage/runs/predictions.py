"""Answers for nodes that came after a run, on the graph that the run keeps."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from fedsage.data.new_rows import NewRows
from fedsage.errors import ConfigError
from fedsage.files import write_atomically
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import RemoteLinks
from fedsage.graph.mend import Generated, mend
from fedsage.graph.split import PARTS, Split
from fedsage.graph.surroundings import with_surroundings
from fedsage.mending.way import WAYS, NewNodes
from fedsage.models.classifier import NodeClassifier
from fedsage.rng import generator
from fedsage.runs.stored_graph import PREDICTIONS, Answering, shares_on
from fedsage.shapes import Array, NodeIds
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


Columns: TypeAlias = dict[str, list[Any]]
DIGITS = 6  # of a probability
SUFFIXES = (".csv", ".parquet")


def predictions(model: NodeClassifier, held: Answering) -> Columns:
    """The answers for all nodes of one owner, as they are at the end of the run."""
    nodes = np.arange(held.graph.num_nodes)
    shares = held.shares(model)
    visible, generated = held.neighbors(nodes)
    return table_of(held.ids, shares, model.class_names, held.graph, visible, generated)


def predictions_on(model: NodeClassifier, graph: Graph, ids: Sequence[str] | range) -> Columns:
    """The answers for all nodes of a graph as it is given, without generated neighbors."""
    names = [str(one) for one in ids]
    held = Answering("", names, model.fitting(graph), None, "plain", "full", (), 0, 0)
    return predictions(model, held)


def table_of(
    ids: Sequence[str] | range,
    shares: Float[Array, "V d_y"],
    class_names: Sequence[str],
    graph: Graph,
    visible: NodeIds,
    generated: NodeIds,
) -> Columns:
    """The columns of a table of predictions.

    Args:
        ids: What the nodes are called.
        shares: The probability of each class.
        class_names: The names of the classes.
        graph: Has the labels of the nodes, and their split if there is one.
        visible: How many neighbors each node has.
        generated: How many neighbors were attached to it, and used.
    """
    best, rounded = shares.argmax(axis=1), shares.astype(np.float64).round(DIGITS)
    names = list(class_names)
    each = {f"probability_{name}": rounded[:, c].tolist() for c, name in enumerate(names)}
    labels = graph.y if graph.class_names == tuple(names) else np.full(len(best), -1)
    return {
        "id": [str(one) for one in ids],
        "predicted": [names[c] for c in best],
        "probability": rounded[np.arange(len(best)), best].tolist(),
        **each,
        "split": parts_of(graph.split, len(best)),
        "label": [None if c < 0 else names[c] for c in labels],
        "neighbors": visible.tolist(),
        "generated": generated.tolist(),
    }


def parts_of(split: Split | None, count: int) -> list[str | None]:
    """The part of the split that each node is in; None for those in no part."""
    found: list[str | None] = [None] * count
    for part in PARTS if split else ():
        for v in getattr(split, part).tolist():
            found[v] = part
    return found


def check_suffix(path: Path) -> None:
    """Refuse a file whose name says of no format that we write."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--out {path} ends in '{path.suffix}'. Predictions are written as "
            f"{' or '.join(SUFFIXES)}: give a file that ends like that."
        )


def write_table(path: Path, columns: Columns) -> None:
    """Write the table, in the format that the file's suffix names."""
    check_suffix(path)
    if path.suffix.lower() == ".csv":
        text = csv_of(columns)
        write_atomically(path, lambda file: file.write(text.encode()))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: column_of(name, held) for name, held in columns.items()})
    write_atomically(path, lambda file: pq.write_table(table, file))


def column_of(name: str, held: list[Any]) -> Any:
    """A column with the type that it has in every table, even an empty one."""
    import pyarrow as pa

    if name in ("neighbors", "generated"):
        return pa.array(held, pa.int64())
    return pa.array(held, pa.float64() if name.startswith("probability") else pa.string())


def csv_of(columns: Columns) -> str:
    """The table as CSV; what is not known is an empty cell."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    shown = [
        [f"{value:.{DIGITS}f}" for value in held] if name.startswith("probability") else held
        for name, held in columns.items()
    ]
    table.writerows(zip(*shown, strict=True))
    return text.getvalue()


def save_predictions(model: NodeClassifier, held: Answering, folder: Path) -> Path:
    """Write ``predictions.csv``; returns where it is."""
    write_table(folder / PREDICTIONS, predictions(model, held))
    return folder / PREDICTIONS
