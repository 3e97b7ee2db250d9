"""One NeighGen for all owners, trained by federated averaging: the paper's ablation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from fedsage.mending.generator import (
    GenDone,
    blank,
    check_generator,
    common_theta,
    for_new_nodes,
    learner,
    local_steps,
    mend_with,
)
from fedsage.mending.way import way_of_mending
from fedsage.mending.whole_shared import share_by_changes
from fedsage.models.parameters import Parameters, load_parameters, parameters_of
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.guard import UPDATE, distance_of
from fedsage.protocol.messages import Mended, divided, form_of, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Summed, in_full, procedure
from fedsage.protocol.server import average


@message
class SharedNeighGen:
    """S → every D_i: the averaged NeighGen with its encoder."""

    t: int
    theta: Parameters


@message
class NeighGenUpdate:
    """D_i → S: NeighGen after local training."""

    theta: Parameters
    done: GenDone


@procedure(
    phase="mending",
    uses=Summed,
    shapes=lambda plan: {"theta": form_of(blank(plan.d_x, plan.config.neighgen).state_dict())},
    sizes=lambda phi, shared, reply: {UPDATE: distance_of(reply.theta, shared.theta)},
    keeps=learner,
    leaves="In each of {config.neighgen.rounds_gen} rounds before training: the weights of the "
    "generator after training on your nodes, and its losses.",
    when=in_full,
)
def update_shared_neighgen(owner: DataOwner, shared: SharedNeighGen) -> NeighGenUpdate:
    """FedAvg of NeighGen: train the shared weights on Eq. (5).

    Note:
        The paper averages φ of Eq. (5) as well. Ours stays with the owner, as in FedSage+,
        so that the two differ only in NeighGen.
    """
    own = learner(owner)
    load_parameters(own.neighgen, shared.theta)
    own.begin(shared.t)
    done = local_steps(owner, shared.t, {}, 0.0)
    return NeighGenUpdate(parameters_of(own.neighgen), done)


@procedure(phase="mending", owed=True, when=in_full)
def receive_shared_neighgen(owner: DataOwner, shared: SharedNeighGen) -> Mended:
    """Retrieve G'_i by the shared NeighGen."""
    load_parameters(learner(owner).neighgen, shared.theta)
    return mend_with(owner)


@way_of_mending(
    "shared",
    rounds=lambda config: config.neighgen.rounds_gen,
    check=check_generator,
    sections=("mend", "neighgen"),
    renew=for_new_nodes,
    continues="common",
    also=(share_by_changes.__module__,),
)
def by_shared_neighgen(exchange: Exchange) -> None:
    """One NeighGen for all owners, trained by federated averaging: the paper's ablation."""
    plan = exchange.plan
    if not in_full(plan.config):
        share_by_changes(exchange)
        return
    settings = plan.config.neighgen
    shared = SharedNeighGen(exchange.journal.start.t, exchange.kept or common_theta(plan))
    for t in exchange.rounds(settings.rounds_gen):
        shared, done = average_neighgen(exchange, shared)
        exchange.end_round(t, asdict(done), shared.theta)
    exchange.all(receive_shared_neighgen, shared)


def average_neighgen(
    exchange: Exchange, shared: SharedNeighGen
) -> tuple[SharedNeighGen, GenDone]:
    """One round: NeighGen trained by all owners and averaged."""
    update = exchange.sum(update_shared_neighgen, shared, mean_update)
    return SharedNeighGen(shared.t + 1, update.theta), update.done


def mean_update(updates: Sequence[NeighGenUpdate]) -> NeighGenUpdate:
    """The mean NeighGen, and the mean losses."""
    theta = average([update.theta for update in updates], [1.0] * len(updates))
    losses = add_up([update.done for update in updates])
    return NeighGenUpdate(theta, divided(losses, len(updates)))
