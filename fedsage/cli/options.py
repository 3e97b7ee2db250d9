"""Options that ``run``, ``compare``, ``split`` and others share, and the config they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from fedsage.cli.settings import read_assignments, read_toml
from fedsage.config import Config, load_config
from fedsage.errors import ConfigError
from fedsage.presets import Settings, overlaid

METHODS = ("fedsage+", "fedsage", "locsage+", "locsage", "globsage", "oracle")
RIVALS = (
    "fedprox", "moon", "scaffold", "fedadam", "fedyogi", "fedgta", "fedpub", "adafgl", "fedgcn",
    "feddep",
)  # fmt: skip
FEDERATED = ("fedsage+", "fedsage")  # what separate owners can run
DATASETS = ("cora", "citeseer", "pubmed", "msacademic", "synthetic")
PARTITIONS = ("louvain", "metis", "random")
PRESETS, LEVELS = ("best", "paper"), ("open", "sums", "private")
RULES = ("mean", "median", "trimmed-mean", "krum")
OWN = (
    "fedsage+WAY to choose how it mends, or your own .py file; 'fedsage methods' lists "
    "everything"
)
METHOD_HELP = f"{', '.join(METHODS)}, a method of others ({', '.join(RIVALS)}), {OWN}"


def among(*names: str) -> Callable[[str], list[str]]:
    """What the shell offers for an option: the names that begin like the word so far."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


KitFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="KIT", help="folder of a party's startup kit")
]
Method: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"{METHOD_HELP} (default: fedsage+)",
        autocompletion=among(*METHODS, *RIVALS),
    ),
]
FederatedMethod: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"{', '.join(FEDERATED)}, fedsage+WAY to choose how it mends, or a .py file that "
        "every party allows (default: fedsage+)",
        autocompletion=among(*FEDERATED),
    ),
]
Dataset: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        help=f"{', '.join(DATASETS)}, pyg:CLASS/NAME, ogb:NAME, or a path: an .npz file or a "
        "folder of tables (default: cora)",
        autocompletion=among(*DATASETS),
    ),
]
Owners: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="number of owners (default: 3)")
]
PartitionBy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="HOW",
        help=f"how to cut the graph: {', '.join(PARTITIONS)}, or label:BETA for skewed labels "
        "(default: louvain)",
        autocompletion=among(*PARTITIONS),
    ),
]
Seed: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="seed of every random draw (default: 0)")
]
Preset: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="best, or paper: the settings of the paper (default: best)",
        autocompletion=among(*PRESETS),
    ),
]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file with settings; wins over --preset"
    ),
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="one setting; wins over --config; repeatable. 'fedsage settings' lists them",
    ),
]
Engine: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="inprocess, or nvflare: a federation of processes on this machine "
        "(default: inprocess)",
        autocompletion=among("inprocess", "nvflare"),
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Aggregate: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help=f"how the server combines the owners' models: {', '.join(RULES)}, or your own .py "
        "file (default: mean)",
        autocompletion=among(*RULES),
    ),
]
SUMS = (
    "open; sums: the server sees only sums over all owners; private: only sums with noise, "
    "which protect every single node"
)
Privacy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help=f"{SUMS} (default: open; sums in a federation of three or more)",
        autocompletion=among(*LEVELS),
    ),
]
FederatedPrivacy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help=f"{SUMS} (default: sums with three or more owners, otherwise open)",
        autocompletion=among(*LEVELS),
    ),
]
Epsilon: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="E", help="ε of a private run; smaller protects more (default: 4)"),
]
Delta: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="D", help="δ of a private run (default: 1e-5)"),
]
Record: TypeAlias = Annotated[
    bool,
    typer.Option("--record", help="keep every message in the folder, for 'fedsage audit'"),
]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="continue the interrupted run in --out")
]
StartFrom: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN_DIR",
        help="begin with the classifier and the generators of an earlier run",
    ),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="where to write the results (default: under runs/)"),
]
Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="replace the results already in --out")
]


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
    start_from: Path | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    deadline: float | None = None,
    min_owners: int | None = None,
    wait: float | None = None,
) -> Config:
    """Flags over ``--set`` over ``--config`` over the preset; checked once.

    ``stored`` holds the settings of a run to resume. Nothing may contradict them, except how
    long to wait for owners.
    """
    below = overlaid(read_toml(config) if config else {}, read_assignments(assignments or []))
    in_file = below.get("run", {}).get("preset") if isinstance(below.get("run"), dict) else None
    flags = {
        "run": given(method=method, seed=seed, engine=engine)
        | ({"start_from": str(start_from)} if start_from else {}),
        "data": given(dataset=dataset, owners=owners, partition=partition),
        "classifier": given(aggregate=aggregate),
        "privacy": given(level=privacy, epsilon=epsilon, delta=delta),
        "federation": given(deadline=deadline, min_owners=min_owners, wait=wait),
    }
    if stored is None:
        found = load_config(below, flags, preset=str(preset or in_file or "best"))
        if (epsilon or delta) and found.privacy.level != "private":
            raise ConfigError(
                f"--epsilon and --delta are for private runs, but the level is "
                f"'{found.privacy.level}'. Add --privacy private."
            )
        return found
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
