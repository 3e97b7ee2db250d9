"""``fedsage data``: graphs by name or path, checks of one's own tables, and their schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedsage.cli import options, show
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError, DataErrors

app = typer.Typer(
    help="List, download, show and check graphs; draft a schema for tables.",
    no_args_is_help=True,
)


@app.command("list")
def list_() -> None:
    """List the graphs that have a name, and where they are."""
    from fedsage.data.datasets import DATASETS, find

    rows = [
        (name, dataset.title, str(find(name) or f"not here yet: fedsage data get {name}"))
        for name, dataset in DATASETS.items()
    ]
    rows.append(("synthetic", "planted communities, of any size", "generated on demand"))
    for name, title, place in rows:
        print(f"{name:<12}{title}\n{'':<12}{place}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="cora, citeseer, pubmed, msacademic")],
) -> None:
    """Download a dataset, unless it is already on this machine."""
    from fedsage.data.datasets import find, known, load_dataset

    known(name)
    ensure_here(name)
    load_dataset(name)
    print(f"{name} is at {find(name)}")


@app.command()
def info(
    graph: Annotated[str, typer.Argument(help="a name or a path")],
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a graph and, with --owners, how it would be cut."""
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
        str, typer.Argument(help="a folder of tables or of owners, an .npz file, or a name")
    ],
) -> None:
    """Check that a graph can be used, or list all its problems."""
    from fedsage.data.load import load, owner_folders

    ensure_here(graph)
    try:
        if owner_folders(graph):
            print(owners_in_words(graph))
        else:
            loaded = load(graph)
            print(
                f"{graph} is fine: {loaded.num_nodes:,} nodes, {loaded.num_links:,} links, "
                f"{loaded.num_features:,} features, {loaded.num_classes} classes"
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
        f"{path} is fine: {len(graphs)} owners, {nodes:,} nodes, {links:,} links, "
        f"{graphs[0].num_features:,} features, {graphs[0].num_classes} classes"
    )


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="one owner's folder, with nodes.csv")],
    out: Annotated[
        Path | None, typer.Option(help="the file to write (default: FOLDER/schema.toml)")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="the column that holds the class (default: label)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
) -> None:
    """Write a schema.toml guessed from one owner's tables, for all owners to agree on."""
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
    print(f"{path}: {len(schema.columns)} features, {num_sparse} sparse, {num_classes} classes")
    for feature in schema.columns:
        print(f"  {feature.name}: {feature.kind}, {guess.seen[feature.name]}")
    for name in schema.ignored:
        print(f"  {name}: ignored, {guess.seen[name]}")
    if not schema.class_names:
        print("  no classes found: fill in 'classes', or give --label-column")
    print("Review it, add what other owners have, and give all owners the same file.")
