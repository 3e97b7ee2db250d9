"""``fedsage split``: a graph cut into one folder per owner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fedsage.cli import options, output
from fedsage.cli.progress import ensure_here
from fedsage.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.graph.known_links import KnownLinks
    from fedsage.graph.partition import Partition
    from fedsage.graph.split import Split
    from fedsage.shapes import NodeIds
    from fedsage.tables.tables import Tables

FORMATS = ("csv", "tables", "parquet", "npz")
WRITTEN = (
    "graph.npz", "schema.toml", "nodes.csv", "edges.csv", "features.csv",
    "nodes.parquet", "edges.parquet", "features.parquet",
)  # fmt: skip
Writer: TypeAlias = Callable[[int, "Path", "Graph", "NodeIds", "Split"], None]


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
    links: Annotated[
        str,
        typer.Option(
            metavar="known[:SHARE]",
            help="let owners know their links to others, or a share of them such as known:0.5",
        ),
    ] = "",
    shared: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0, max=1, help="share of nodes that two owners hold"),
    ] = 0.0,
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
    from fedsage.graph.known_links import shared_nodes
    from fedsage.graph.partition import partition as cut
    from fedsage.graph.partition import with_splits

    data, number = config.data, config.run.seed
    name = f"{Path(data.dataset).stem}-{data.owners}-{data.partition.replace(':', '')}"
    folder = checked_folder(out or Path("owners") / f"{name}-seed{number}", force)
    ensure_here(data.dataset)
    graph = load(data.dataset, **config.synthetic.model_dump())
    part = with_splits(cut(graph, data.owners, data.partition, number), data.split)
    splits = [part.split_of(i, data.train, data.val, number) for i in range(part.num_owners)]
    more = shared_nodes(part.nodes, shared, number) if shared else []
    known = remote_links(graph, part, links, number, format, more)
    if more:
        part, splits = sharing(graph, part, splits, more)
    write = writer(data.dataset, format, known)
    try:
        clear(folder)
        held = zip(part.subgraphs, part.nodes, splits, strict=True)
        for i, (subgraph, nodes, parts) in enumerate(held):
            write(i, folder / f"owner-{i}", subgraph, nodes, parts)
    except OSError as error:
        raise ConfigError(f"--out {folder} cannot be written ({error.strerror}).") from None
    output.print_owners(data.dataset, graph, part)
    last = f" … owner-{part.num_owners - 1}" if part.num_owners > 1 else ""
    print(f"Written to {folder}/owner-0{last}")


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


def sharing(
    graph: Graph, part: Partition, splits: Sequence[Split], more: Sequence[NodeIds]
) -> tuple[Partition, list[Split]]:
    """The same owners with more nodes each; a node has the same part at all who hold it."""
    import numpy as np

    from fedsage.graph.known_links import with_shared
    from fedsage.graph.split import PARTS, Split

    pairs = list(zip(part.nodes, splits, strict=True))
    parts = [np.concatenate([ids[getattr(one, name)] for ids, one in pairs]) for name in PARTS]
    nodes, held = tuple(with_shared(part.nodes, more)), []
    missing = np.ones(graph.num_links, dtype=bool)
    for ids in nodes:
        place = np.full(graph.num_nodes, -1)
        place[ids] = np.arange(len(ids))
        held.append(Split(*parts).within(place))
        missing &= (place[graph.links] < 0).any(axis=0)
    subgraphs = tuple(map(graph.induced, nodes))
    return replace(
        part, nodes=nodes, subgraphs=subgraphs, missing_links=int(missing.sum())
    ), held


def remote_links(
    graph: Graph,
    part: Partition,
    links: str,
    seed: int,
    format: str,
    shared: Sequence[NodeIds],
) -> Sequence[KnownLinks]:
    """What owners know of others; nothing unless it is asked for."""
    how, _, share = links.partition(":")
    if not how and not shared:
        return ()
    try:
        known = float(share or 1) if how else 0.0
    except ValueError:
        known = -1
    if how not in ("known", "") or not 0 <= known <= 1:
        raise ConfigError(
            f"--links is '{links}'. Give known, or known:SHARE with a share from 0 to 1."
        )
    if format == "npz":
        raise ConfigError(
            "--links and --shared need tables, which name nodes. Leave out --format npz."
        )
    from fedsage.graph.known_links import known_links

    return known_links(graph, part.nodes, known, seed, shared)


def writer(dataset: str, format: str, known: Sequence[KnownLinks]) -> Writer:
    """How to write one owner's part; own tables keep their ids, columns, schema and split."""
    from fedsage.data.load import tables_folder
    from fedsage.data.npz import save_graph
    from fedsage.tables.tables import read_tables
    from fedsage.tables.write import tables_of, write_tables

    own_tables = tables_folder(dataset)
    tables = read_tables(own_tables) if own_tables else None

    def as_npz(i: int, folder: Path, graph: Graph, nodes: NodeIds, parts: Split) -> None:
        save_graph(
            graph, folder / "graph.npz",
            node=nodes, train=parts.train, val=parts.val, test=parts.test,
        )  # fmt: skip

    def as_tables(i: int, folder: Path, graph: Graph, nodes: NodeIds, parts: Split) -> None:
        own = (
            tables.induced(nodes, None if tables.split else parts)
            if tables
            else tables_of(graph, [str(v) for v in nodes.tolist()], parts)
        )
        if known:
            own = with_links(own, known[i], tables.ids if tables else None)
        write_tables(own, folder, "parquet" if format == "parquet" else "csv")

    return as_npz if format == "npz" else as_tables


def with_links(tables: Tables, known: KnownLinks, ids: Sequence[str] | None) -> Tables:
    """An owner's tables with its links to others; ``ids`` are what nodes of G are called."""
    from fedsage.graph.known_links import RemoteLinks

    there = tuple(known.there if ids is None else (ids[int(name)] for name in known.there))
    owner = tuple(f"owner-{i}" for i in known.at.tolist())
    schema = replace(tables.schema, links="known")
    if known.shared:
        schema = replace(schema, shared="same")
    return replace(
        tables, schema=schema, remote=RemoteLinks(known.here, there, owner, known.weights)
    )
