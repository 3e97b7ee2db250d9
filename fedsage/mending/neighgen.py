"""NeighGen, the paper's way (Sec. 4): procedures A, C, D and E, then line 3 of Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce

from jaxtyping import Float
from torch import Tensor

from fedsage.config import Config
from fedsage.errors import ConfigError, PrivacyError
from fedsage.graph.mend import num_hidden
from fedsage.mending.generator import (
    GenDone,
    check_generator,
    for_new_nodes,
    hg_of,
    learner,
    local_steps,
    mend_with,
    partners_of,
    refuse_few,
    refuse_unfit,
)
from fedsage.mending.offers import carried_bytes
from fedsage.mending.sealed_neighgen import FEWEST, exchange_under_seal
from fedsage.mending.way import way_of_mending
from fedsage.mending.whole_neighgen import exchange_in_whole_numbers
from fedsage.models.parameters import Parameters
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.guard import UPDATE, norm_of
from fedsage.protocol.messages import (
    Ask,
    AtMost,
    Each,
    Form,
    Mended,
    OwnerId,
    combined,
    form_of,
    message,
)
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Sealed, Summed, in_full, in_sums, procedure


@message
class GenOffer:
    """Procedure C, D_i → S → every D_j: what others need to run H^g_i on Z_i^t."""

    t: int
    z: Float[Tensor, "batch d_z"]  # Z_i^t
    hg: Parameters  # H^g_i; the encoder H^e_i stays with the owner


@message
class GenOffers:
    """Procedure A, S → D_j: the offers of all other owners."""

    of: dict[OwnerId, GenOffer]


@message
class GenGradients:
    """Procedure D, D_j → S: for every other D_i, the gradient of L^f_{i,j} in H^g_i."""

    of: dict[OwnerId, Parameters]


@message
class GenGradient:
    """Procedure A, S → D_i: the sum of those gradients over all other owners, unweighted."""

    t: int
    hg: Parameters  # empty if there is no other owner


def offer_form(plan: Plan) -> dict[str, Form]:
    """The form of an offer."""
    gen = plan.config.neighgen
    return {"z": (AtMost(gen.batch_size), gen.widths[-1]), "hg": form_of(hg_of(plan))}


def gradient_form(plan: Plan) -> dict[str, Form]:
    """The form of gradients in H^g; dGen's count is an integer and has no gradient."""
    fgen = {name: t for name, t in hg_of(plan).items() if name.startswith("fgen.")}
    return {"of": Each(form_of(fgen))}


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=offer_form,
    check=lambda plan, owner, ask, offer: (
        None if offer.t == ask.t else f"an offer of round {offer.t}, not of round {ask.t}"
    ),
    leaves="In each of {config.neighgen.rounds_gen} rounds before training: embeddings of a "
    "batch of your nodes and the weights of your generator, which the server passes to all "
    "other owners.",
    when=in_full,
)
def local_request(owner: DataOwner, ask: Ask) -> GenOffer:
    r"""Procedure C (LocalRequest): :math:`Z_i^t` of a batch on Ḡ_i, and :math:`H^g_i`.

    Note:
        The paper prints :math:`V_i^t \in \bar V_i^t`; we read ⊆.
    """
    own = learner(owner)
    own.begin(ask.t)
    return GenOffer(ask.t, own.embeddings(ask.t), own.hg())


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=gradient_form,
    check=lambda plan, owner, offers, reply: (
        None if {*reply.of} == {*offers.of} else f"gradients for owners {sorted(reply.of)}"
    ),
    sizes=lambda phi, offers, reply: {UPDATE: max(map(norm_of, reply.of.values()), default=0)},
    leaves="In each of these rounds: gradients that tell the others how far their generated "
    "features are from your nearest nodes.",
    when=in_full,
)
def feed_forward(owner: DataOwner, offers: GenOffers) -> GenGradients:
    r"""Procedure D (FeedForward): for every other :math:`D_j` the gradient of its L^f.

    Refuses a batch so small that the gradient would reveal single rows of X_i.
    """
    form = offer_form(owner.plan)
    for j, offer in offers.of.items():
        refuse_few(owner, j, len(offer.z))
        refuse_unfit(offer, form, j)
    own = learner(owner)
    return GenGradients(
        {j: own.gradient_for(j, offer.t, offer.z, offer.hg) for j, offer in offers.of.items()}
    )


@procedure(
    phase="mending",
    uses=Summed,
    keeps=learner,
    leaves="In each of these rounds: the losses of your generator.",
    when=in_full,
)
def update_neighgen(owner: DataOwner, gradient: GenGradient) -> GenDone:
    r"""Procedure E (UpdateNeighGen): one step on Eq. (5) with its L^f taken from Eq. (6).

    .. math::
        \nabla \mathcal{L}_i = \nabla (\lambda^d \mathcal{L}^d + \lambda^f \mathcal{L}^f
        + \lambda^c \mathcal{L}^c) + \lambda^f \alpha \nabla \mathcal{L}^f_{i,J}

    Note:
        The paper names only Eq. (6); dGen and the local classifier must learn too. α is
        applied here and nowhere else. The others' gradient is in H^g_i: it takes z_v as
        given, as they do. If an owner takes several steps in a round, the first has that
        gradient; the rest are on Eq. (5) with Eq. (4).
    """
    settings = owner.config.neighgen
    return local_steps(owner, gradient.t, gradient.hg, settings.alpha * settings.lambda_f)


@procedure(phase="mending", owed=True)
def mend_graph(owner: DataOwner, ask: Ask) -> Mended:
    """Algorithm 1, line 3: retrieve G'_i by NeighGen_i."""
    return mend_with(owner)


def check_batches(plan: Plan) -> None:
    """Refuse batches that other owners would refuse in the first round."""
    check_generator(plan)
    gen = plan.config.neighgen
    if in_sums(plan.config) and len(plan.nodes) < FEWEST:
        raise ConfigError(
            f"NeighGen's exchange can be hidden among {FEWEST} owners or more, and there are "
            f"{len(plan.nodes)}. Use another way (mend.how), or --privacy open."
        )
    for i, nodes in enumerate(plan.nodes):
        hidden = num_hidden(nodes, gen.hide_ratio)
        batch = min(gen.batch_size, nodes - hidden)
        if len(plan.nodes) > 1 and batch < gen.min_batch:
            raise PrivacyError(
                f"Owner {i} has {nodes} nodes, of which {hidden} are hidden, and "
                f"neighgen.batch_size is {gen.batch_size}: a batch of {batch} is below "
                f"neighgen.min_batch {gen.min_batch}: gradients would reveal single rows of "
                "features. Use a larger batch, fewer owners, or another way of mending."
            )


def bared_by_partners(config: Config) -> str | None:
    """With few partners, an owner could see the gradient of a single other."""
    if not config.neighgen.partners:
        return None
    return (
        f"neighgen.partners is {config.neighgen.partners}, but where sums are hidden all "
        "owners answer each other. Use neighgen.partners=0, or --privacy open."
    )


def exchange_bytes(plan: Plan) -> int:
    """About how many bytes are exchanged: grows with the square of the number of owners."""
    if not in_full(plan.config):
        return carried_bytes(plan)
    gen, owners = plan.config.neighgen, len(plan.nodes)
    partners = min(gen.partners or owners, owners) - (0 if gen.partners else 1)
    weights = sum(4 * weight.numel() for weight in hg_of(plan).values())
    offer = weights + 4 * gen.batch_size * gen.widths[-1]
    return gen.rounds_gen * owners * (1 + partners) * (offer + weights)


@way_of_mending(
    "neighgen",
    rounds=lambda config: config.neighgen.rounds_gen,
    check=check_batches,
    carries=exchange_bytes,
    sections=("mend", "neighgen"),
    renew=for_new_nodes,
    continues="own",
    bares=bared_by_partners,
    also=(exchange_in_whole_numbers.__module__, exchange_under_seal.__module__),
)
def by_neighgen(exchange: Exchange) -> None:
    """The paper's generator, Alg. 1, lines 2 and 3: train NeighGen jointly, then mend."""
    config = exchange.plan.config
    one_round = server_execution_for_gen if in_full(config) else exchange_in_whole_numbers
    if in_sums(config):
        one_round = exchange_under_seal
    for t in exchange.rounds(config.neighgen.rounds_gen):
        exchange.end_round(t, asdict(one_round(exchange, t)))
    exchange.all(mend_graph, Ask(0))


def server_execution_for_gen(exchange: Exchange, t: int) -> GenDone:
    r"""Procedure A (ServerExecutionForGen): one round of federated NeighGen training.

    Passes every owner's :math:`(Z_i^t, H^g_i)` to all others, and sends every owner the sum of
    the replies, :math:`\nabla \mathcal{L}^f_{i,J} \gets \sum_{j \in [M] \setminus \{i\}}
    \nabla \mathcal{L}^f_{i,j}`, unweighted.

    Note:
        With ``neighgen.partners``, every offer goes to that many others, drawn anew in each
        round, and their sum is scaled up to the expected sum over all others.
    """
    gen, stream = exchange.plan.config.neighgen, exchange.plan.stream("partners", t)
    offers = exchange.pass_on(local_request, Ask(t))  # C
    chosen = partners_of(list(offers), gen.partners, stream)
    asked = {j: GenOffers({i: offers[i] for i in offers if j in chosen[i]}) for j in offers}
    replies = exchange.pass_on(feed_forward, {j: o for j, o in asked.items() if o.of})  # D
    sums = {
        i: GenGradient(t, scaled_sum([replies[j].of[i] for j in chosen[i] if j in replies],
                                     len(offers) - 1))
        for i in offers
    }  # fmt: skip
    del offers, asked, replies  # M² gradients: not needed while their sums are sent
    return exchange.mean(update_neighgen, sums)  # E


def scaled_sum(gradients: Sequence[Parameters], all_of_them: int) -> Parameters:
    """The sum as if ``all_of_them`` had answered, like the average of those who did."""
    if not gradients:
        return {}
    total: Parameters = reduce(combined, gradients)
    scale = all_of_them / len(gradients)
    return total if scale == 1 else {name: each * scale for name, each in total.items()}
