"""``fedsage split``: a graph cut into one folder per owner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fedsage.cli import options, show
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.graph.split import Split
    from fedsage.shapes import NodeIds

FORMATS = ("csv", "tables", "parquet", "npz")
WRITTEN = (
    "graph.npz", "schema.toml", "nodes.csv", "edges.csv", "features.csv",
    "nodes.parquet", "edges.parquet", "features.parquet",
)  # fmt: skip
Writer: TypeAlias = Callable[["Path", "Graph", "NodeIds", "Split"], None]


def split(
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="where to write (default: under owners/)"),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="tables (CSV files), parquet (parquet files), or npz"
        ),
    ] = "tables",
    force: options.Force = False,
) -> None:
    """Cut a graph into one folder per owner."""
    if format not in FORMATS:
        raise ConfigError(f"Unknown format '{format}'.{nearest(format, FORMATS)}")
    config = options.config_from(
        dataset=dataset,
        owners=owners,
        partition=partition,
        seed=seed,
        assignments=assignments,
    )
    from fedsage.data.load import load
    from fedsage.graph.partition import partition as cut
    from fedsage.graph.partition import with_splits

    data, number = config.data, config.run.seed
    name = f"{Path(data.dataset).stem}-{data.owners}-{data.partition.replace(':', '')}"
    folder = checked_folder(out or Path("owners") / f"{name}-seed{number}", force)
    ensure_here(data.dataset)
    graph = load(data.dataset, **config.synthetic.model_dump())
    part = with_splits(cut(graph, data.owners, data.partition, number), data.split)
    write = writer(data.dataset, format)
    try:
        clear(folder)
        for i, (subgraph, nodes) in enumerate(zip(part.subgraphs, part.nodes, strict=True)):
            parts = part.split_of(i, data.train, data.val, number)
            write(folder / f"owner-{i}", subgraph, nodes, parts)
    except OSError as error:
        raise ConfigError(f"--out {folder} cannot be written ({error.strerror}).") from None
    show.print_owners(data.dataset, graph, part)
    print(f"Written to {folder}/owner-0 … owner-{part.num_owners - 1}")


def checked_folder(folder: Path, force: bool) -> Path:
    """The folder to write to, provided that nothing in it would be lost by accident."""
    if folder.is_file():
        raise ConfigError(f"--out {folder} is a file. Give a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ConfigError(
            f"--out {folder} is not empty. Choose another folder, or add --force to replace "
            "the owners in it."
        )
    return folder


def clear(folder: Path) -> None:
    """Remove the owners that an earlier split wrote, and nothing else."""
    for owner in folder.glob("owner-*"):
        for name in WRITTEN:
            (owner / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody keeps other files there
            owner.rmdir()


def writer(dataset: str, format: str) -> Writer:
    """How to write one owner's part; own tables keep their ids, columns, schema and split."""
    from fedsage.data.load import tables_folder
    from fedsage.data.npz import save_graph
    from fedsage.tables.tables import read_tables
    from fedsage.tables.write import tables_of, write_tables

    own_tables = tables_folder(dataset)
    tables = read_tables(own_tables) if own_tables else None

    def as_npz(folder: Path, graph: Graph, nodes: NodeIds, parts: Split) -> None:
        save_graph(
            graph, folder / "graph.npz",
            node=nodes, train=parts.train, val=parts.val, test=parts.test,
        )  # fmt: skip

    def as_tables(folder: Path, graph: Graph, nodes: NodeIds, parts: Split) -> None:
        own = (
            tables.induced(nodes, None if tables.split else parts)
            if tables
            else tables_of(graph, [str(v) for v in nodes.tolist()], parts)
        )
        write_tables(own, folder, "parquet" if format == "parquet" else "csv")

    return as_npz if format == "npz" else as_tables
