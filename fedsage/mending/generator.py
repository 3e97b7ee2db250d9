"""What every way of mending with a NeighGen has: the generator at an owner, and its steps."""

from __future__ import annotations

from functools import cache

from fedsage.config import NeighGenConfig
from fedsage.errors import ConfigError
from fedsage.models.gen_learner import GenLearner, mean_of
from fedsage.models.neighgen import NeighGen
from fedsage.models.parameters import Parameters
from fedsage.protocol.messages import message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.rng import generator


@message
class GenDone:
    """Procedure E, D_i → S: the round is over; the mean of each loss over its steps."""

    loss: float  # Eq. (5), what D_i sees of it
    degree: float  # L^d
    feature: float  # L^f, first term
    classification: float  # L^c


def learner(owner: DataOwner) -> GenLearner:
    """NeighGen at this owner."""

    def new() -> GenLearner:
        config, train, shape = owner.config, owner.split.train, owner.plan.shape
        how = config.neighgen, config.classifier.fanouts, owner.seed, config.run.device
        return GenLearner(owner.id, owner.graph, train, shape, *how)

    return owner.part("neighgen", new)


@cache
def blank(num_features: int, settings: NeighGenConfig) -> NeighGen:
    """A NeighGen as it is in a run with these settings, for its shapes alone."""
    return NeighGen(num_features, settings, generator(0, "shapes alone"))


def hg_of(plan: Plan) -> Parameters:
    """H^g with some weights or other."""
    return blank(plan.d_x, plan.config.neighgen).hg.state_dict()


def local_steps(owner: DataOwner, t: int, others: Parameters, weight: float) -> GenDone:
    """The steps of one round, the first with the others' gradient."""
    own, steps = learner(owner), range(owner.config.neighgen.local_steps)
    done = [own.step(t, k, others if k == 0 else {}, weight) for k in steps]
    terms = ("joint", "degree", "feature", "classification")
    return GenDone(*(mean_of([getattr(losses, term) for losses in done]) for term in terms))


def check_generator(plan: Plan) -> None:
    """Refuse a NeighGen whose layers do not go with the classifier's."""
    layers, of_model = len(plan.config.neighgen.widths), len(plan.config.model.widths)
    if layers != of_model:
        raise ConfigError(
            f"neighgen.widths has {layers} layers and model.widths {of_model}, but both work "
            "on the same neighborhoods. Give as many."
        )
