"""What server and owners each make of the same settings; nobody's data is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fedsage.config import Config
from fedsage.models.gen_training import GenTraining
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.neighgen import Counts, GenShape
from fedsage.models.parameters import parameters_of
from fedsage.models.training import Training
from fedsage.protocol.messages import Classifier, OwnerId
from fedsage.protocol.procedures import Procedure
from fedsage.rng import generator


@dataclass(frozen=True, eq=False)
class Plan:
    """The agreed run.

    ``asks`` are the procedures that an owner may be asked for, by name, and no others.
    """

    config: Config
    num_features: int  # d_x
    num_classes: int  # d_y
    nodes: tuple[int, ...]  # of each owner
    asks: Mapping[str, Procedure[Any, Any, Any]]
    weights: Mapping[OwnerId, float] = field(default_factory=dict)  # agreed on, if at all
    numbers: int | None = None  # columns that are scaled, where that is known

    @property
    def d_x(self) -> int:
        """How many features there are."""
        return self.num_features

    @property
    def d_y(self) -> int:
        """How many classes there are."""
        return self.num_classes

    @property
    def seed(self) -> int:
        """All draws come from it."""
        return self.config.run.seed

    @property
    def shape(self) -> SageShape:
        """All that it takes to build the classifier F."""
        model = self.config.model
        return SageShape(self.d_x, self.d_y, model.widths, model.head, model.norm)

    @property
    def training(self) -> Training:
        """How owners train."""
        return training_of(self.config)

    @property
    def gen(self) -> GenTraining:
        """How owners train NeighGen."""
        return gen_training_of(self.config, self.d_x)

    @cached_property
    def phi(self) -> Classifier:
        """The first φ, which depends on the seed and on no data but its size."""
        return Classifier(parameters_of(GraphSage(self.shape, self.stream("phi"))), {})

    def stream(self, *path: str | int) -> Any:
        """The random stream for one purpose."""
        return generator(self.seed, *path)

    def alone(self) -> Plan:
        """The same for an owner whose optimizer's state nobody averages."""
        classifier = self.config.classifier.model_copy(update={"moments": "own"})
        return replace(self, config=self.config.model_copy(update={"classifier": classifier}))


def training_of(config: Config) -> Training:
    """The plain values that owners train by."""
    classifier = config.classifier
    return Training(
        eta=classifier.eta,
        optimizer=classifier.optimizer,
        weight_decay=classifier.weight_decay,
        batch_size=classifier.batch_size,
        fanouts=classifier.fanouts,
        local_epochs=classifier.local_epochs,
        dropout=config.model.dropout,
        mix=config.mend.mix,
        leaves=config.mend.leaves,
        moments=classifier.moments,
        weighting=classifier.weighting,
        inference=config.evaluation.inference,
        device=config.run.device,
        kernel=config.run.kernel,
    )


def gen_training_of(config: Config, num_features: int) -> GenTraining:
    """The plain values that owners train NeighGen by."""
    gen = config.neighgen
    return GenTraining(
        shape=GenShape(num_features, gen.widths, gen.hidden, gen.output),
        hide_ratio=gen.hide_ratio,
        fresh=gen.fresh,
        eta=gen.eta,
        batch_size=gen.batch_size,
        fanouts=config.classifier.fanouts,
        local_steps=gen.local_steps,
        alpha=gen.alpha,
        lambda_d=gen.lambda_d,
        lambda_f=gen.lambda_f,
        lambda_c=gen.lambda_c,
        noise=gen.noise,
        counts=Counts(gen.counts, gen.at_least, gen.at_most),
        keep_words=gen.keep_words,
        match_norms=gen.match_norms,
        min_batch=gen.min_batch,
        max_bytes=gen.memory_mb * 2**20,
        device=config.run.device,
    )
