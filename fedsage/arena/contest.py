"""A contest: who competes, on which graphs and owners, and which settings may be tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, TypeAlias

from fedsage.config import Config, load_config
from fedsage.errors import ConfigError, nearest
from fedsage.methods import Method, find_method
from fedsage.models.backbone import BACKBONES
from fedsage.presets import Settings, overlaid
from fedsage.readable import counted, owners_of
from fedsage.registry import is_file

Moments: TypeAlias = Literal["averaged", "own"]
Point: TypeAlias = Mapping[str, Any]  # settings by their dotted names
MOMENTS: tuple[Moments, ...] = ("averaged", "own")
ALIKE = {"traffic": {"how": "full"}, "evaluation": {"models": "both"}}  # for every method
TUNING = 100  # the seed of trials; results are from 0 on
DECIDED = {
    "classifier.moments": "both columns of the table",
    "data.dataset": "--datasets", "data.owners": "--owners", "data.partition": "--partition",
    "data.train": "--split", "data.val": "--split", "run.seed": "--seeds",
    "run.method": "--methods",
}  # fmt: skip
OURS = ("fedsage+", "fedsage", "fedsage@gcn")
THEIRS = (
    "fedprox", "moon", "scaffold", "fedadam", "fedyogi", "fedgta", "fedpub", "adafgl",
    "feddep@fusing",
)  # fmt: skip
BOUNDS = ("fedgcn@gcn", "locsage", "globsage")  # who know more than others, or less
ALL = (*OURS, *THEIRS, *BOUNDS)
QUICK = ("fedsage+", "fedsage", "fedsage@gcn", "fedprox", "fedgta", "fedpub")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A method and its backbone: ``fedprox``, or ``fedprox@gcn``."""

    name: str
    method: str
    backbone: str | None

    @property
    def found(self) -> Method:
        """The method."""
        return find_method(self.method)

    @property
    def columns(self) -> tuple[Moments, ...]:
        """What may become of the optimizer's state; alone, there is nothing to average."""
        return MOMENTS if self.found.topology == "federated" else ("own",)


def entrant(name: str) -> Entrant:
    """An entrant by its name; refuses what is unknown."""
    method, _, backbone = name.partition("@")
    find_method(method)
    if backbone:
        BACKBONES.find(backbone)
    shown = find_method(method).name if is_file(method) else method
    return Entrant(f"{shown}@{backbone}" if backbone else shown, method, backbone or None)


@dataclass(frozen=True, slots=True)
class Ring:
    """Where methods compete: a graph, its owners, the split, and the stress on them."""

    dataset: str
    owners: int
    partition: str
    split: str
    stress: tuple[tuple[str, float], ...] = ()

    @property
    def settings(self) -> Settings:
        """The section ``data``."""
        train, val = shares_of(self.split)
        data = {"dataset": self.dataset, "owners": self.owners, "partition": self.partition}
        return {"data": {**data, "train": train, "val": val, **dict(self.stress)}}

    @property
    def words(self) -> str:
        """The ring in words."""
        more = "".join(f", {knob.replace('_', ' ')} {value:g}" for knob, value in self.stress)
        owners = owners_of(self.owners, self.partition)
        return f"{self.dataset}, {owners}, {self.split}{more}"


def shares_of(split: str) -> tuple[float, float]:
    """Shares of training and validation nodes, from words like ``60/20/20``."""
    try:
        train, val, test = (float(word) for word in split.split("/"))
    except ValueError:
        train = val = test = 0.0
    if train <= 0 or val <= 0 or test <= 0 or abs(train + val + test - 100) > 1e-6:
        raise ConfigError(
            f"--split is '{split}'. Give three percentages that add up to 100, with validation "
            "nodes to choose by: 60/20/20."
        )
    return train / 100, val / 100


@dataclass(frozen=True, slots=True)
class Contest:
    """Everything that is run: entrants on rings, over seeds, each with a budget of trials."""

    entrants: Sequence[Entrant]
    rings: Sequence[Ring]
    seeds: Sequence[int]
    budget: int
    settings: Settings = field(default_factory=dict)  # for all of them

    def __post_init__(self) -> None:
        """Refuse a name given twice, settings that cannot be set, and too large a budget."""
        names = [who.name for who in self.entrants]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(
                f"Two methods are called '{twice[0]}', and their rows could not be told "
                "apart. Give one of them another name."
            )
        for name, instead in DECIDED.items():
            if name in self.pinned:
                raise ConfigError(f"The arena sets '{name}' itself. Use {instead} instead.")
        known = {f"method.{name}" for who in self.entrants for name in who.found.options}
        own = [name for name in self.pinned if name.startswith("method.")]
        if self.entrants and (strange := [name for name in own if name not in known]):
            raise ConfigError(
                f"None of the methods has a setting '{strange[0]}'.{nearest(strange[0], known)}"
            )
        for who in self.entrants:
            most = len(self.trials(who))
            if most < self.budget:
                raise ConfigError(
                    f"--budget is {self.budget}, but {who.name} has only "
                    f"{counted(most, 'setting')} to try, and all methods get equally many "
                    f"trials. Give at most {most}."
                )

    @property
    def pinned(self) -> list[str]:
        """Settings that are the same for all who have them, so that nothing else is tried."""
        return pinned_by(self.settings)

    def trials(self, who: Entrant) -> list[Point]:
        """What is tried for an entrant."""
        return trials(who.found, self.budget, self.pinned)

    def settings_for(self, who: Entrant) -> Settings:
        """The settings for all, without those of other methods."""
        own = self.settings.get("method", {})
        has = {key: value for key, value in own.items() if key in who.found.options}
        rest = {section: held for section, held in self.settings.items() if section != "method"}
        return rest | ({"method": has} if has else {})

    def config(
        self, who: Entrant, ring: Ring, moments: Moments, point: Point, seed: int
    ) -> Config:
        """The settings of one run."""
        chosen = overlaid(
            ALIKE,
            self.settings_for(who),
            ring.settings,
            {"classifier": {"moments": moments}, "run": {"method": who.method, "seed": seed}},
            {"model": {"backbone": who.backbone}} if who.backbone else {},
            nested(point),
        )
        return load_config(chosen)


def pinned_by(settings: Settings) -> list[str]:
    """What ``--set`` names; the learning rate is that of GlobSage, too."""
    named = [f"{section}.{key}" for section, held in settings.items() for key in held]
    return [*named, "classifier.eta_whole"] if "classifier.eta" in named else named


def nested(point: Point) -> Settings:
    """Settings by section, from dotted names."""
    parts = [name.split(".") for name in point]
    return overlaid(*({section: {key: point[f"{section}.{key}"]}} for section, key in parts))


def trials(method: Method, budget: int, pinned: Collection[str] = ()) -> list[Point]:
    """What is tried for a method: its usual values first, then those nearest to them.

    Every combination of the values in ``method.search`` has a distance, the number of steps
    away from the first value of each setting; the ``budget`` nearest are taken. Settings that
    are ``pinned`` are left out.
    """
    names = [name for name in method.search if name not in pinned]
    places = list(product(*(range(len(method.search[name])) for name in names)))
    places.sort(key=lambda steps: (sum(steps), [-step for step in steps]))
    return [
        {name: method.search[name][k] for name, k in zip(names, steps, strict=True)}
        for steps in places[:budget]
    ]
