"""``fedsage predict``: the classes of a graph's nodes, predicted by a trained model."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.models.classifier import NodeClassifier


def predict(
    model: Annotated[Path, typer.Option(metavar="RUN_DIR", help="the folder of a run")],
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME|PATH", help="the graph: a name, an .npz file or a folder of tables"
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the CSV file to write")],
    owner: Annotated[
        int | None,
        typer.Option(metavar="N", help="whose model to use, if each owner has its own"),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="the file of your own backbone, if the run used one"),
    ] = None,
) -> None:
    """Predict the class of every node, with its probability, as a CSV file."""
    from fedsage.files import write_atomically
    from fedsage.models.classifier import load_models

    models = load_models(model, backbone)
    if len(models) == 1 and owner is not None:
        raise ConfigError(f"{model} holds one shared model. Leave out --owner {owner}.")
    if len(models) > 1 and (owner is None or not 0 <= owner < len(models)):
        raise ConfigError(
            f"{model} holds {len(models)} local models, one per owner. Choose one with "
            f"--owner 0 to --owner {len(models) - 1}."
        )
    chosen = models[owner or 0]
    graph, ids = graph_and_ids(model, chosen, data)
    probabilities = chosen.predict_proba(graph)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["node", "predicted", "probability"])
    best = probabilities.argmax(axis=1)
    for node, c, row in zip(ids, best, probabilities, strict=True):
        table.writerow([node, chosen.class_names[c], f"{row[c]:.4f}"])
    try:
        write_atomically(out, lambda file: file.write(text.getvalue().encode()))
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written ({error.strerror}).") from None
    print(f"{counted(len(best), 'prediction')} written to {out}")


def graph_and_ids(
    folder: Path, model: NodeClassifier, data: str
) -> tuple[Graph, Sequence[str] | range]:
    """The graph to predict on, and the names of its nodes: their ids, or numbers from 0."""
    from fedsage.data.load import load, tables_folder
    from fedsage.runs.folder import RESULT, read_result
    from fedsage.tables.tables import read_tables

    if own_tables := tables_folder(data):
        tables = read_tables(own_tables)
        if model.scale is None and any(f.scaling == "standard" for f in tables.schema.columns):
            note = "the model stores no scale, so numbers are scaled from these tables alone"
            print(f"Note: {note}", file=sys.stderr)
        return model.graph_of(tables), tables.ids
    known = {}
    if data == "synthetic" and (folder / RESULT).exists():  # the graph that it was trained on
        known = read_result(folder).get("config", {}).get("synthetic", {})
    ensure_here(data)
    graph = load(data, **known)
    return graph, range(graph.num_nodes)
