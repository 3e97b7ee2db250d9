"""The plan: what server and owners each derive from the same settings; it holds no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedsage.config import Config
from fedsage.models.backbone import Shape, new_model
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.messages import Classifier, OwnerId
from fedsage.protocol.procedures import Procedure
from fedsage.rng import Stream, generator


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What a run begins with instead of fresh weights: those of an earlier one."""

    phi: Parameters
    generators: Mapping[OwnerId, Parameters] = field(default_factory=dict)  # as far as known


@dataclass(frozen=True, eq=False)
class Plan:
    """The agreed run.

    ``asks`` are the only procedures that an owner may be asked to run, by name.
    """

    config: Config
    num_features: int  # d_x
    num_classes: int  # d_y
    nodes: tuple[int, ...]  # of each owner
    asks: Mapping[str, Procedure[Any, Any, Any]]
    weights: Mapping[OwnerId, float] = field(default_factory=dict)  # if agreed
    counted: int = 0  # nodes of all owners, if the number of each is not known
    numbers: int | None = None  # columns to scale, if known
    start: Start | None = None  # from an earlier run, if it begins with one

    @property
    def d_x(self) -> int:
        """How many features there are."""
        return self.num_features

    @property
    def d_y(self) -> int:
        """How many classes there are."""
        return self.num_classes

    @cached_property
    def nodes_of(self) -> Mapping[OwnerId, int]:
        """How many nodes each owner has, for owners that joined."""
        return dict(zip(self.weights or range(len(self.nodes)), self.nodes, strict=True))

    @property
    def num_nodes(self) -> int:
        """How many nodes all owners have together."""
        return self.counted or sum(self.nodes)

    @property
    def seed(self) -> int:
        """The seed of all random streams."""
        return self.config.run.seed

    @property
    def shape(self) -> Shape:
        """Everything needed to build the classifier F."""
        return Shape(self.d_x, self.d_y, self.config.model)

    @cached_property
    def phi(self) -> Classifier:
        """The first φ: of an earlier run, or of the seed; depends on no data but its size."""
        return Classifier(self.start.phi if self.start else self.fresh_phi(self.shape), {})

    def fresh_phi(self, shape: Shape) -> Parameters:
        """Weights of the classifier that are drawn by the seed."""
        return parameters_of(new_model(shape, self.stream("phi")))

    def generator_of(self, owner: OwnerId) -> Parameters:
        """The generator that an owner begins with; empty if it is a fresh one."""
        return dict(self.start.generators.get(owner, {})) if self.start else {}

    def stream(self, *path: str | int) -> Stream:
        """The random stream for one purpose."""
        return generator(self.seed, *path)
