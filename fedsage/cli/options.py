"""The flags that ``run``, ``compare``, ``split`` and others share, and the config they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fedsage.cli.given import read_assignments, read_toml
from fedsage.config import Config, load_config
from fedsage.errors import ConfigError
from fedsage.layering import Settings, overlaid

DATASET_HELP = (
    "cora, citeseer, pubmed, msacademic, synthetic, or a path (.npz, a folder of tables)"
)
METHOD_HELP = (
    "fedsage+, fedsage, locsage+, locsage, globsage, oracle, fedsage+WAY to fix how it mends, "
    "or a .py file of your own; 'fedsage methods' lists them all"
)

Method: TypeAlias = Annotated[
    str | None, typer.Option(help=f"{METHOD_HELP} (default: fedsage+)")
]
Dataset: TypeAlias = Annotated[str | None, typer.Option(help=f"{DATASET_HELP} (default: cora)")]
Owners: TypeAlias = Annotated[
    int | None, typer.Option(help="M, the number of owners (default: 3)")
]
PartitionBy: TypeAlias = Annotated[
    str | None,
    typer.Option("--partition", help="louvain, metis, random, label:BETA (default: louvain)"),
]
Seed: TypeAlias = Annotated[
    int | None, typer.Option(help="seed of all random draws (default: 0)")
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
Engine: TypeAlias = Annotated[
    str | None, typer.Option(help="inprocess, or nvflare: a federation on this machine")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]
Aggregate: TypeAlias = Annotated[
    str | None, typer.Option(help="mean, median, trimmed-mean, krum (default: mean)")
]
Privacy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="open, or sums: the server sees only sums over owners (default: sums in "
        "federations of three and more, open in simulations)"
    ),
]
Record: TypeAlias = Annotated[
    bool, typer.Option("--record", help="keep every message in the folder, for 'audit'")
]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="continue the interrupted run in --out")
]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(help="folder for the results (default: under runs/)")
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="replace what --out holds")]


def config_from(
    *,
    stored: Settings | None = None,
    config: Path | None = None,
    assignments: list[str] | None = None,
    preset: str | None = None,
    method: str | None = None,
    dataset: str | None = None,
    owners: int | None = None,
    partition: str | None = None,
    seed: int | None = None,
    engine: str | None = None,
    aggregate: str | None = None,
    privacy: str | None = None,
    deadline: float | None = None,
    min_owners: int | None = None,
) -> Config:
    """Flags over ``--set`` over ``--config`` over the preset; checked once.

    ``stored`` are the settings of a run to go on with, which nothing may contradict, but
    for how long owners are waited for.
    """
    below = overlaid(read_toml(config) if config else {}, read_assignments(assignments or []))
    in_file = below.get("run", {}).get("preset") if isinstance(below.get("run"), dict) else None
    flags = {
        "run": given(method=method, seed=seed, engine=engine),
        "data": given(dataset=dataset, owners=owners, partition=partition),
        "classifier": given(aggregate=aggregate),
        "privacy": given(level=privacy),
        "federation": given(deadline=deadline, min_owners=min_owners),
    }
    if stored is None:
        return load_config(below, flags, preset=str(preset or in_file or "best"))
    before = load_config(stored, preset=str(stored["run"]["preset"]))
    asked = load_config(stored, below, flags, preset=str(preset or before.run.preset))
    if asked.model_copy(update={"federation": before.federation}) != before:
        raise ConfigError(
            f"The run in --out has other settings: {first_difference(before, asked)}. Remove "
            "what is different, or start a new run in another folder."
        )
    return asked


def first_difference(before: Config, asked: Config) -> str:
    """The first setting in which two configs differ."""
    old, new = before.model_dump(mode="json"), asked.model_dump(mode="json")
    for section, values in old.items():
        for key, value in values.items():
            if new[section][key] != value:
                return f"{section}.{key} was {value} and is now {new[section][key]}"
    return "the preset"


def given(**flags: Any) -> dict[str, Any]:
    """The flags that were given on the command line."""
    return {name: value for name, value in flags.items() if value is not None}
