"""What all ways of mending with NeighGen share: an owner's generator, and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from fedsage.config import NeighGenConfig
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.graph.mend import Generated
from fedsage.mending.way import NewNodes
from fedsage.models.gen_learner import GenLearner, mean_of
from fedsage.models.neighgen import NeighGen
from fedsage.models.parameters import Parameters, load_parameters, parameters_of
from fedsage.models.row_form import like_real_rows, row_form_of
from fedsage.protocol.messages import Form, Mended, OwnerId, message, misfit
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.rng import Stream, generator


@message
class GenDone:
    """Procedure E, D_i → S: the round is over; the mean of each loss over its steps."""

    loss: float  # Eq. (5), without the others' term
    degree: float  # L^d
    feature: float  # L^f, first term
    classification: float  # L^c


def learner(owner: DataOwner) -> GenLearner:
    """NeighGen at this owner."""

    def new() -> GenLearner:
        config, train, shape = owner.config, owner.split.train, owner.plan.shape
        how = config.neighgen, config.classifier.fanouts, owner.plan.seed, config.run.device
        made = GenLearner(owner.id, owner.graph, train, shape, *how, owner.seed)
        if earlier := owner.plan.generator_of(owner.id):
            load_parameters(made.neighgen, earlier)
        return made

    return owner.part("neighgen", new)


def common_theta(plan: Plan) -> Parameters:
    """The first NeighGen of all owners together: of an earlier run, or of the seed."""
    earlier = plan.generator_of(min(plan.start.generators, default=0)) if plan.start else {}
    return earlier or fresh_theta(plan, plan.d_x)


def fresh_theta(plan: Plan, num_features: int) -> Parameters:
    """Weights of NeighGen that are drawn by the seed."""
    made = NeighGen(num_features, plan.config.neighgen, plan.stream("theta"))
    return parameters_of(made)


@cache
def blank(num_features: int, settings: NeighGenConfig) -> NeighGen:
    """A NeighGen as in a run with these settings, used only for its shapes."""
    return NeighGen(num_features, settings, generator(0, "shapes alone"))


def hg_of(plan: Plan) -> Parameters:
    """H^g with arbitrary weights."""
    return blank(plan.d_x, plan.config.neighgen).hg.state_dict()


def local_steps(owner: DataOwner, t: int, others: Parameters, weight: float) -> GenDone:
    """The steps of one round, the first with the others' gradient."""
    own, steps = learner(owner), range(owner.config.neighgen.local_steps)
    done = [own.step(t, k, others if k == 0 else {}, weight) for k in steps]
    terms = ("joint", "degree", "feature", "classification")
    return GenDone(*(mean_of([getattr(losses, term) for losses in done]) for term in terms))


def mend_with(owner: DataOwner) -> Mended:
    """Attach what the owner's NeighGen generates, and remember it for nodes to come."""
    own = learner(owner)
    owner.remembered = parameters_of(own.neighgen)
    return owner.attach(own.generated())


def for_new_nodes(new: NewNodes) -> Generated:
    """Neighbors of nodes that came after the run, by the NeighGen of the run."""
    neighgen = NeighGen(new.graph.num_features, new.neighgen, generator(0, "overwritten"))
    load_parameters(neighgen, new.remembered)
    form = row_form_of(new.known.x, new.neighgen.keep_words, new.neighgen.match_norms)
    z = neighgen.encoder.on_graph(new.graph)[torch.from_numpy(new.nodes)]
    generated, of = neighgen.hg(z, new.stream)
    return Generated(new.nodes[of], like_real_rows(generated.detach(), form))


def refuse_few(owner: DataOwner, other: OwnerId, batch: int) -> None:
    """Refuse a batch whose gradient would reveal single rows of X_i."""
    least = owner.config.neighgen.min_batch
    if batch < least:
        raise PrivacyError(
            f"Owner {other} asks owner {owner.id} for a gradient over {batch} "
            f"embeddings, but below {least} it would reveal single rows of features. "
            "Raise neighgen.batch_size, leave out owners that are so small, or lower "
            "neighgen.min_batch only if you accept that risk."
        )


def refuse_unfit(found: Any, form: Form, other: OwnerId) -> None:
    """Refuse what another owner sent in a form that was not agreed."""
    if why := misfit(found, form):
        raise ProtocolError(
            f"Owner {other}'s generator does not fit the agreed shape: {why}. Do all owners "
            "use the same settings?"
        )


def partners_of(
    owners: Sequence[OwnerId], count: int, stream: Stream
) -> dict[OwnerId, list[OwnerId]]:
    r"""Who gets each owner's offer: :math:`[M] \setminus \{i\}`, or ``count`` of them."""
    others = {i: [j for j in owners if j != i] for i in owners}
    if not 0 < count < len(owners) - 1:
        return others
    drawn = {i: stream.choice(each, count, replace=False) for i, each in others.items()}
    return {i: sorted(each.tolist()) for i, each in drawn.items()}


def check_generator(plan: Plan) -> None:
    """Refuse a NeighGen with another number of layers than the classifier."""
    layers, of_model = len(plan.config.neighgen.widths), len(plan.config.model.widths)
    if layers != of_model:
        raise ConfigError(
            f"neighgen.widths has {layers} layers and model.widths {of_model}, but both work "
            "on the same neighborhoods. Give both the same number."
        )
