"""``fedsage data`` and ``fedsage split``: graphs by name or path, and how owners cut them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from fedsage.cli import options, show
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError

app = typer.Typer(help="List, fetch, show and check graphs.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """The graphs that have a name, and where they are."""
    from fedsage.graph.datasets import DATASETS, find

    rows = [
        (name, dataset.title, str(find(name) or f"not here: fedsage data get {name}"))
        for name, dataset in DATASETS.items()
    ]
    rows.append(("synthetic", "planted communities, of any size", "made when asked for"))
    for name, title, place in rows:
        print(f"{name:<12}{title}\n{'':<12}{place}")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="cora, citeseer, pubmed, msacademic")],
) -> None:
    """Fetch a dataset, unless it is on this machine."""
    from fedsage.graph.datasets import find, known, load_dataset

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
    from fedsage.graph.load import load
    from fedsage.graph.partition import partition as cut

    ensure_here(graph)
    loaded = load(graph, **config.synthetic.model_dump())
    show.print_graph(graph, loaded)
    if owners is not None or partition is not None:
        part = cut(loaded, config.data.owners, config.data.partition, config.run.seed)
        show.print_owners(graph, loaded, part)


@app.command()
def check(graph: Annotated[str, typer.Argument(help="a name or a path")]) -> None:
    """Say whether a graph can be used, or what is wrong with it."""
    from fedsage.graph.load import load

    ensure_here(graph)
    loaded = load(graph)
    print(
        f"{graph} is fine: {loaded.num_nodes:,} nodes, {loaded.num_links:,} links, "
        f"{loaded.num_features:,} features, {loaded.num_classes} classes"
    )


def split(
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    out: Annotated[
        Path | None, typer.Option(help="folder to write (default: under owners/)")
    ] = None,
    force: options.Force = False,
) -> None:
    """Cut a graph into one folder for each owner."""
    config = options.config_from(
        dataset=dataset,
        owners=owners,
        partition=partition,
        seed=seed,
        assignments=assignments,
    )
    from fedsage.graph.io import save_graph
    from fedsage.graph.load import load
    from fedsage.graph.partition import partition as cut
    from fedsage.graph.split import split_nodes

    data, number = config.data, config.run.seed
    name = f"{Path(data.dataset).stem}-{data.owners}-{data.partition.replace(':', '')}"
    folder = out or Path("owners") / f"{name}-seed{number}"
    if folder.is_file():
        raise ConfigError(f"--out {folder} is a file. Give a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ConfigError(
            f"--out {folder} is not empty. Choose another folder, or add --force to replace "
            "the owners in it."
        )
    ensure_here(data.dataset)
    graph = load(data.dataset, **config.synthetic.model_dump())
    part = cut(graph, data.owners, data.partition, number)
    try:
        for stale in folder.glob("owner-*/graph.npz"):
            stale.unlink()
            with contextlib.suppress(OSError):  # somebody keeps other files there
                stale.parent.rmdir()
        for i, (subgraph, nodes) in enumerate(zip(part.subgraphs, part.nodes, strict=True)):
            parts = split_nodes(subgraph, data.train, data.val, number, i)
            save_graph(
                subgraph, folder / f"owner-{i}" / "graph.npz",
                node=nodes, train=parts.train, val=parts.val, test=parts.test,
            )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"--out {folder} cannot be written ({error.strerror}).") from None
    show.print_owners(data.dataset, graph, part)
    print(f"Written to {folder}/owner-0 … owner-{part.num_owners - 1}")
