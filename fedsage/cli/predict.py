"""``fedsage predict``: the classes of a graph's nodes, predicted by a trained model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli.output import every_problem
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.models.classifier import NodeClassifier
    from fedsage.runs.predictions import Columns
    from fedsage.runs.stored_graph import Answering


def predict(
    model: Annotated[Path, typer.Option(metavar="RUN_DIR", help="the folder of a run")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="the file to write: .csv or .parquet")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help="a graph: a name, an .npz file or a folder of tables; by default the owner's "
            "own, which the run keeps",
        ),
    ] = None,
    new: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="tables of new nodes and their links, to each other and to the owner's nodes",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="with --new: refuse all rows if one cannot be used"),
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="answer as of that day: without links that came after it"
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="whose nodes or model, if the run has several"),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="the file of your own backbone, if the run used one"),
    ] = None,
) -> None:
    """Predict the class of every node: a table with all probabilities, as CSV or parquet.

    For nodes that the run keeps, the answers are those of its predictions.csv.
    """
    from fedsage.models.classifier import load_models
    from fedsage.runs.predictions import check_suffix, predictions, write_table
    from fedsage.runs.stored_graph import load_answering, places

    check_suffix(out)
    day = None if as_of is None else day_of(as_of)
    models, where = load_models(model, backbone), places(model)
    chosen = whose(model, models, where, owner)
    if new is not None and data is not None:
        raise ConfigError("--new and --data cannot be combined. Leave out one of them.")
    if new is not None and day is not None:
        raise ConfigError("--new asks about today, --as-of about the past. Leave out one.")
    if data is None:
        held = load_answering(where[one_of(model, where, owner)])
        held = held if day is None else held.as_of(day)
        table = answers_to(chosen, held, new, strict) if new else predictions(chosen, held)
    else:
        table = answers_for(model, chosen, where, owner, data, day)
    try:
        write_table(out, table)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written ({error.strerror}).") from None
    print(f"{counted(len(table['id']), 'prediction')} written to {out}")


def day_of(text: str) -> float:
    """The end of a day, or a moment, in days since 2000; refuses what is no date."""
    from fedsage.tables.kinds.dates import MIDNIGHT, SECONDS, SINCE, USUAL, moment

    found, start = moment(text, USUAL), moment(SINCE, ())
    if found is None or start is None:
        raise ConfigError(f"--as-of {text} is not a date. Write it like 2024-05-31.")
    seconds = (found.replace(tzinfo=None) - start).total_seconds()
    rest_of_day = SECONDS - 1 if found.time() == MIDNIGHT else 0  # links of that day count
    return (seconds + rest_of_day) / SECONDS


def answers_to(model: NodeClassifier, held: Answering, folder: Path, strict: bool) -> Columns:
    """Answers for new rows; those that cannot be used are named on stderr."""
    from fedsage.data.new_rows import read_new
    from fedsage.errors import DataErrors
    from fedsage.runs.predictions import answers_for_new, schema_for_new

    known = {name: v for v, name in enumerate(held.ids)}
    with every_problem():
        found = read_new(folder, schema_for_new(model), known)
        if found.skipped and strict:
            raise DataErrors(str(folder), found.skipped, len(found.skipped))
    if found.skipped:
        print(f"{counted(len(found.skipped), 'row')} skipped:", file=sys.stderr)
    for line in found.skipped:
        print(f"- {line}", file=sys.stderr)
    return answers_for_new(model, held, found)


def whose(
    folder: Path,
    models: Sequence[NodeClassifier],
    where: Mapping[str, Path],
    owner: str | None,
) -> NodeClassifier:
    """The shared model, or that of the owner."""
    names = list(where) or [str(i) for i in range(len(models))]
    if owner is not None and owner not in names:
        known = ", ".join(names) if where or len(models) > 1 else "none by name"
        raise ConfigError(
            f"--owner {owner}: {folder} has no such owner (it has {known}). Give one of "
            "them, or leave out --owner where the run has one shared model."
        )
    if len(models) == 1:
        return models[0]
    if owner is None:
        raise ConfigError(
            f"{folder} holds {len(models)} local models, one per owner. Choose one with "
            f"--owner {names[0]} to --owner {names[-1]}."
        )
    return models[names.index(owner)]


def one_of(folder: Path, where: Mapping[str, Path], owner: str | None) -> str:
    """The owner whose nodes are asked for."""
    if not where:
        raise ConfigError(
            f"{folder} keeps no owner's graph, as at a coordinator or after a run of an "
            "earlier version. Add --data with the graph to predict on."
        )
    if owner is None and len(where) > 1:
        raise ConfigError(
            f"{folder} keeps the nodes of {counted(len(where), 'owner')}. Choose one with "
            f"--owner: {', '.join(where)}."
        )
    return owner if owner is not None else next(iter(where))


def answers_for(
    folder: Path,
    model: NodeClassifier,
    where: Mapping[str, Path],
    owner: str | None,
    data: str,
    day: float | None = None,
) -> Columns:
    """Answers for the nodes of a graph: as in the run, if it is one that the run keeps."""
    from fedsage.runs.predictions import predictions, predictions_on

    graph, ids = graph_and_ids(folder, model, data)
    asked = [place for name, place in where.items() if owner in (None, name)]
    if (held := kept_graph(asked, model.fitting(graph))) is not None:
        return predictions(model, held if day is None else held.as_of(day))
    graph = graph if day is None else graph.as_of(day)
    if any((place / "mended.npz").exists() for place in asked):
        note = (
            f"{data} is not a graph that the run keeps, so its answers rest on its own links, "
            "without generated neighbors. Leave out --data for the owners' own nodes."
        )
        print(f"Note: {note}", file=sys.stderr)
    return predictions_on(model, graph, ids)


def kept_graph(places: Sequence[Path], graph: Graph) -> Answering | None:
    """What the run keeps of the same nodes with the same links, if it does."""
    from fedsage.runs.stored_graph import load_answering, num_nodes_in

    for place in places:
        if num_nodes_in(place) == graph.num_nodes:
            held = load_answering(place)
            if held.graph.same_nodes(graph):
                return held
    return None


def graph_and_ids(
    folder: Path, model: NodeClassifier, data: str
) -> tuple[Graph, Sequence[str] | range]:
    """The graph to predict on, and the names of its nodes: their ids, or numbers from 0."""
    from fedsage.data.load import load, tables_folder
    from fedsage.runs.folder import RESULT, read_result
    from fedsage.tables.tables import read_tables

    if own_tables := tables_folder(data):
        tables = read_tables(own_tables)
        if model.scale is None and tables.scaled.any():
            note = "the model stores no scale, so numbers are scaled from these tables alone"
            print(f"Note: {note}", file=sys.stderr)
        return model.graph_of(tables), tables.ids
    known = {}
    if data == "synthetic" and (folder / RESULT).exists():  # the graph that it was trained on
        known = read_result(folder).get("config", {}).get("synthetic", {})
    ensure_here(data)
    graph = load(data, **known)
    return graph, range(graph.num_nodes)
