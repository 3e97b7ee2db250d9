"""``fedsage data``: find, describe and check graphs, and draft a schema for tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli import options, output
from fedsage.cli.output import every_problem
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError, DataErrors
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.tables.guess import Guess
    from fedsage.tables.schema import Schema

app = typer.Typer(
    help="List, download, inspect and check graphs; draft a schema for your own tables.",
    no_args_is_help=True,
)


@app.command("list")
def list_() -> None:
    """List the datasets known by name, and where they are."""
    from fedsage.data.datasets import DATASETS, find

    rows = [
        (
            name,
            dataset.title,
            str(find(name) or f"not downloaded; get it with: fedsage data get {name}"),
        )
        for name, dataset in DATASETS.items()
    ]
    rows.append(("synthetic", "planted communities, of any size", "generated when needed"))
    for name, title, place in rows:
        print(f"{name:<12}{title}\n{'':<12}{place}")


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cora, citeseer, pubmed or msacademic",
            autocompletion=options.among(*options.DATASETS[:-1]),
        ),
    ],
) -> None:
    """Download a dataset, unless it is already on this machine."""
    from fedsage.data.datasets import find, known, load_dataset

    known(name)
    ensure_here(name)
    load_dataset(name)
    print(f"{name} is at {find(name)}")


@app.command()
def info(
    graph: Annotated[
        str, typer.Argument(metavar="NAME|PATH", help="a dataset's name or a path")
    ],
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
) -> None:
    """Describe a graph and, with --owners, how it would be cut."""
    config = options.config_from(
        dataset=graph,
        owners=owners,
        partition=partition,
        seed=seed,
        assignments=assignments,
    )
    from fedsage.data.load import load
    from fedsage.graph.partition import partition as cut

    ensure_here(graph)
    loaded = load(graph, **config.synthetic.model_dump())
    output.print_graph(graph, loaded)
    if owners is not None or partition is not None:
        part = cut(loaded, config.data.owners, config.data.partition, config.run.seed)
        output.print_owners(graph, loaded, part)


@app.command()
def check(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PATH",
            help="a folder of tables, a folder of owners, an .npz file, or a name",
        ),
    ],
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="the schema of the tables (default: in the folder or beside it)",
        ),
    ] = None,
) -> None:
    """Check whether a graph can be used; list every problem if not."""
    from fedsage.data.load import load, owner_folders, tables_folder
    from fedsage.data.owned import read_all, read_owned, together
    from fedsage.tables.schema import read_schema

    ensure_here(graph)
    with every_problem():
        given = read_schema(schema) if schema else None
        if owner_folders(graph):
            owned = read_all(graph, given)
        elif folder := tables_folder(graph):
            owned = {folder.name: read_owned(folder, given)}
        else:
            owned = {}
        graphs = together(owned).subgraphs if owned else (load(graph),)
    abroad = sum(one.num_remote for one in owned.values())
    print(fine_in_words(graph, graphs, abroad))
    if owned:
        from fedsage.data.concerns import concerns_of

        for line in concerns_of(owned):
            print(f"Warning: {line}", file=sys.stderr)


def fine_in_words(name: str, graphs: Sequence[Graph], abroad: int) -> str:
    """A line about one graph, or those of several owners, with ``abroad`` links to others."""
    nodes, links = (sum(getattr(g, n) for g in graphs) for n in ("num_nodes", "num_links"))
    owners = f"{len(graphs)} owners, " if len(graphs) > 1 else ""
    more = f"{counted(abroad, 'link')} to other owners' nodes, " if abroad else ""
    return (
        f"{name} is fine: {owners}{counted(nodes, 'node')}, {counted(links, 'link')}, "
        f"{more}{width(graphs[0])}"
    )


def width(graph: Graph) -> str:
    """How many features and classes a graph has."""
    features, classes = graph.num_features, graph.num_classes
    return f"{counted(features, 'feature')}, {counted(classes, 'class')}"


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="one owner's folder, with its nodes.csv")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the file to write (default: FOLDER/schema.toml)"),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column that holds a node's id (default: id)"),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column that holds the class (default: label)"),
    ] = None,
    source_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column of one end of a link (default: source)"),
    ] = None,
    target_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column of the other end (default: target)"),
    ] = None,
    weight_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column of a link's weight"),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column of a link's date"),
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="show only words that at least N rows have (default: 8)"
        ),
    ] = None,
    empty: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="a word that means an empty cell; may be repeated"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="replace the file if it exists")
    ] = False,
) -> None:
    """Draft a schema.toml from one owner's tables, for all owners to agree on."""
    from fedsage.tables.feature import FEWEST
    from fedsage.tables.guess import guess_schema
    from fedsage.tables.schema import SCHEMA
    from fedsage.tables.schema_file import write_schema
    from fedsage.tables.uses import Named

    path = out or folder / SCHEMA
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists. Add --force to replace it.")
    ends = source_column, target_column
    named = Named(id_column, label_column, *ends, weight_column, time_column)
    guess = guess_schema(folder, named, at_least or FEWEST, empty or ())
    try:
        write_schema(guess.schema, path, guess.notes)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written ({error.strerror}).") from None
    for line in guess_in_words(guess, path):
        print(line)
    print(next_step(folder, path, guess.schema))


def guess_in_words(guess: Guess, path: Path) -> list[str]:
    """What was written, and what was seen in every column."""
    schema = guess.schema
    num_sparse, num_classes = len(schema.of_kind("sparse")), len(schema.class_names)
    features = f"{counted(len(schema.columns), 'feature')}, {num_sparse} sparse"
    lines = [f"{path}: {features}, {counted(num_classes, 'class')}"]
    lines += [f"  {said}" for said in guess.said]
    lines += [f"  {f.name}: {f.kind}, {guess.seen[f.name]}" for f in schema.columns]
    lines += [f"  {name}: ignored, {guess.seen[name]}" for name in schema.ignored]
    if not schema.class_names:
        few = [feature.name for feature in schema.of_kind("category")]
        seen = f" ({', '.join(few)} hold few different words)" if few else ""
        lines.append(
            "  no classes found: name the column with --label-column, or it becomes a feature"
            f"{seen}; if you have no labels, fill in 'classes'"
        )
    return lines


def next_step(folder: Path, path: Path, schema: Schema) -> str:
    """What to do with a new schema: share it, or put the tables right first."""
    from fedsage.tables.tables import read_tables

    try:
        read_tables(folder, schema)
    except DataErrors as errors:
        problems = counted(errors.count, "problem")
        check = f"fedsage data check {folder} --schema {path}"
        return f"The tables have {problems} that no schema can solve: {check}"
    return "Review it, then make one schema for all owners with: fedsage data merge"


@app.command()
def merge(
    schemas: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="the schema of each owner")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the file to write")],
    force: Annotated[
        bool, typer.Option("--force", help="replace the file if it exists")
    ] = False,
) -> None:
    """Make the common schema of several owners from the schema of each."""
    from fedsage.tables.merge import merge_schemas
    from fedsage.tables.schema import read_schema
    from fedsage.tables.schema_file import write_schema

    if out.exists() and not force:
        raise ConfigError(f"{out} already exists. Add --force to replace it.")
    with every_problem():
        merged = merge_schemas({str(path): read_schema(path) for path in schemas})
    try:
        write_schema(merged.schema, out)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written ({error.strerror}).") from None
    schema = merged.schema
    num_sparse, num_classes = len(schema.of_kind("sparse")), len(schema.class_names)
    features = f"{counted(len(schema.columns), 'feature')}, {num_sparse} sparse"
    print(f"{out}: {features}, {counted(num_classes, 'class')}")
    for said in merged.said:
        print(f"  {said}")
    print("Give all owners this file; each checks it with: fedsage data check FOLDER")
