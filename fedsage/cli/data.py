"""``fedsage data``: find, describe and check graphs, and draft a schema for tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli import options, show
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError, DataErrors
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph

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
        str, typer.Argument(metavar="NAME", help="cora, citeseer, pubmed or msacademic")
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
    show.print_graph(graph, loaded)
    if owners is not None or partition is not None:
        part = cut(loaded, config.data.owners, config.data.partition, config.run.seed)
        show.print_owners(graph, loaded, part)


@app.command()
def check(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PATH",
            help="a folder of tables, a folder of owners, an .npz file, or a name",
        ),
    ],
) -> None:
    """Check whether a graph can be used; list every problem if not."""
    from fedsage.data.load import load, owner_folders

    ensure_here(graph)
    try:
        if owner_folders(graph):
            print(owners_in_words(graph))
        else:
            loaded = load(graph)
            print(
                f"{graph} is fine: {counted(loaded.num_nodes, 'node')}, "
                f"{counted(loaded.num_links, 'link')}, {width(loaded)}"
            )
    except DataErrors as errors:
        print(f"Error: {errors}", file=sys.stderr)
        raise typer.Exit(2) from None


def owners_in_words(path: str) -> str:
    """A line about the owners in a folder; raises if any of them has problems."""
    from fedsage.data.owned import load_owners

    graphs = load_owners(path).subgraphs
    nodes, links = (sum(getattr(g, n) for g in graphs) for n in ("num_nodes", "num_links"))
    return (
        f"{path} is fine: {counted(len(graphs), 'owner')}, {counted(nodes, 'node')}, "
        f"{counted(links, 'link')}, {width(graphs[0])}"
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
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the column that holds the class (default: label)"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="replace the file if it exists")
    ] = False,
) -> None:
    """Draft a schema.toml from one owner's tables, for all owners to agree on."""
    from fedsage.tables.guess import guess_schema
    from fedsage.tables.schema import SCHEMA, write_schema

    path = out or folder / SCHEMA
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists. Add --force to replace it.")
    guess = guess_schema(folder, label_column)
    schema = guess.schema
    try:
        write_schema(schema, path, guess.notes)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written ({error.strerror}).") from None
    num_sparse, num_classes = len(schema.of_kind("sparse")), len(schema.class_names)
    features = f"{counted(len(schema.columns), 'feature')}, {num_sparse} sparse"
    print(f"{path}: {features}, {counted(num_classes, 'class')}")
    for feature in schema.columns:
        print(f"  {feature.name}: {feature.kind}, {guess.seen[feature.name]}")
    for name in schema.ignored:
        print(f"  {name}: ignored, {guess.seen[name]}")
    if not schema.class_names:
        print("  no classes found: fill in 'classes', or name the column with --label-column")
    print("Review it, add what other owners have, and give every owner the same file.")
