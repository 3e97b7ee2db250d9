"""The flags that ``run``, ``compare``, ``split`` and others share, and the config they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fedsage.config import Config, load_config, overlaid, read_assignments, read_toml

DATASETS = "cora, citeseer, pubmed, msacademic, synthetic, or a path (.npz, a folder of tables)"

Dataset: TypeAlias = Annotated[str | None, typer.Option(help=f"{DATASETS} (default: cora)")]
Owners: TypeAlias = Annotated[
    int | None, typer.Option(help="M, the number of owners (default: 3)")
]
PartitionBy: TypeAlias = Annotated[
    str | None,
    typer.Option("--partition", help="louvain, metis, random, label:BETA (default: louvain)"),
]
Seed: TypeAlias = Annotated[
    int | None, typer.Option(help="all draws come from it (default: 0)")
]
Preset: TypeAlias = Annotated[
    str | None, typer.Option(help="best, or paper: the paper's settings (default: best)")
]
ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option("--config", help="settings from a TOML file, over the preset")
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.key=value; may be repeated"),
]
Engine: TypeAlias = Annotated[str | None, typer.Option(help="inprocess, the only one so far")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="replace what --out holds")]


def config_from(
    *,
    config: Path | None = None,
    assignments: list[str] | None = None,
    preset: str | None = None,
    method: str | None = None,
    dataset: str | None = None,
    owners: int | None = None,
    partition: str | None = None,
    seed: int | None = None,
    engine: str | None = None,
) -> Config:
    """Flags over ``--set`` over ``--config`` over the preset; checked once."""
    below = overlaid(read_toml(config) if config else {}, read_assignments(assignments or []))
    in_file = below.get("run", {}).get("preset") if isinstance(below.get("run"), dict) else None
    flags = {
        "run": given(method=method, seed=seed, engine=engine),
        "data": given(dataset=dataset, owners=owners, partition=partition),
    }
    return load_config(below, flags, preset=str(preset or in_file or "best"))


def given(**flags: Any) -> dict[str, Any]:
    """The flags that were on the command line."""
    return {name: value for name, value in flags.items() if value is not None}
