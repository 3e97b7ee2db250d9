"""Private training, an owner's side: only noisy sums leave, and each is paid for first.

Nothing that is sent here depends on links. A node is one record (``privacy/records.py``); the
owner adds its share of the noise, from a key that nobody else has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedsage.errors import PrivacyError
from fedsage.graph.graph import Graph
from fedsage.graph.split import Split
from fedsage.models.backbone import dense, feature_rows
from fedsage.models.home import Home, fit_home, home_shares, known_labels
from fedsage.models.linear import unit_rows
from fedsage.models.parameters import Logits, Parameters, load_parameters
from fedsage.models.sparse import product
from fedsage.privacy.accountant import Charge
from fedsage.privacy.ledger import Budget, Ledger
from fedsage.privacy.noise import Bits
from fedsage.privacy.records import (
    COUNT,
    PART,
    Terms,
    clipped,
    noisy,
    summed_gradient,
    terms_for,
    with_bias,
)
from fedsage.protocol.agreement import Ready
from fedsage.protocol.messages import Ask, Classifier, Form, Ints, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Open, Summed, in_private, procedure
from fedsage.protocol.wire import encode
from fedsage.shapes import Array, NodeIds


@message
class NoisyCount:
    """D_i → S: how many training nodes it has, with noise, in parts of a node."""

    parts: int


@message
class Weights:
    """S → every D_i: the weights of round ``t``, and how many training nodes there may be."""

    t: int
    count: int
    weights: Float[Tensor, "k d_y"]


@message
class NoisyGradient:
    """D_i → S: the sum of its nodes' clipped gradients, with noise, in whole numbers."""

    total: Int[Tensor, "k d_y"]


@dataclass(slots=True)
class Purse:
    """Pays for what one run asks, and gives receipts; see ``privacy/ledger.py``."""

    ledger: Ledger = field(default_factory=Ledger)
    run: str = "simulation"
    limit: Budget | None = None
    unclaimed: bool = False

    def pay(self, what: str, asked: str, charge: Charge) -> None:
        """Write down a charge, unless the same question was paid for before."""
        self.ledger.charge(self.run, what, asked, charge, self.limit)
        self.unclaimed = True

    def receipt(self) -> bool:
        """Whether something was paid for since the last receipt."""
        found, self.unclaimed = self.unclaimed, False
        return found


class PrivateOwner(DataOwner):
    """An owner in a private run; at the end it answers by a second stage of its own."""

    def __init__(
        self,
        owner: OwnerId,
        graph: Graph,
        split: Split,
        plan: Plan,
        mended: Graph | None = None,
    ) -> None:
        super().__init__(owner, graph, split, plan, mended)
        how = plan.config.privacy
        self.purse = Purse(limit=Budget(how.epsilon, how.delta))
        self.rows: dict[int, Int[Array, "n k"]] = {}  # as whole numbers, by their bits
        self.checksums: dict[int, bytes] = {}  # of these
        self._home: Home | None = None

    def paid(self, what: str, charge: Charge, question: bytes, data: bytes) -> Bits:
        """Pay for a sum; returns secret bits for its noise, and for drawing nodes.

        They follow from the owner's secret, the run, the question and the data it is about:
        the same question gets the same answer, and no noise is ever used for another one.
        Without a secret, as in simulations, they follow from the seed of the run.
        """
        asked = sha256(question + sha256(data).digest() + repr(terms_of(self.plan)).encode())
        self.purse.pay(what, asked.hexdigest(), charge)
        run = self.purse.run if self.seed != self.plan.seed else ""
        secret = f"noise of owner {self.id}, {self.seed}".encode()
        return Bits(secret, run, what, asked.hexdigest())

    def records(self, a: int) -> Int[Array, "n k"]:
        """Its training nodes as whole numbers of so many bits."""
        if a not in self.rows:
            found = records(self.plan, self.graph, self.split.train, 2**a)
            self.rows, self.checksums = {a: found}, {a: sha256(found.tobytes()).digest()}
        return self.rows[a]

    @property
    def home(self) -> Home:
        """Its second stage, fitted when first asked for; it never leaves."""
        if self._home is None:
            self._home = fit_home(self.model, self.graph, self.split.train, self.split.val)
        return self._home

    def take_over(self, phi: Parameters, memory: Parameters) -> None:
        """Hold φ; the second stage is fitted anew."""
        load_parameters(self.model, phi)
        self._home = None

    def answers(self, graph: Graph, nodes: NodeIds) -> Logits:
        """The logarithm of each class's probability, by the second stage."""
        known = known_labels(graph, self.split.train)
        found = home_shares(self.home, self.model, graph, known, nodes)
        return torch.from_numpy(np.log(np.maximum(found, 1e-30)).astype(np.float32))


def terms_of(plan: Plan) -> Terms:
    """The noise of a run; every party works it out by itself."""
    config = plan.config
    k, d_y = size_of(plan)
    how = config.privacy
    rounds, owners = config.classifier.rounds_c, config.data.owners
    return terms_for(how.epsilon, how.delta, how.rate, rounds, owners, k * d_y)


def size_of(plan: Plan) -> tuple[int, int]:
    """The size of the weights that are trained: of features or projections, and a constant."""
    return min(plan.d_x, plan.config.model.widths[0]) + 1, plan.d_y


@lru_cache(maxsize=2)
def projection(plan: Plan) -> Float[Tensor, "d_x k"] | None:
    """Random directions that all know, if there are more features than the run has room for."""
    most = plan.config.model.widths[0]
    if plan.d_x <= most:
        return None
    drawn = plan.stream("projection").standard_normal((plan.d_x, most), np.float32)
    return torch.from_numpy(drawn / np.float32(most**0.5))


def records(plan: Plan, graph: Graph, nodes: NodeIds, longest: int) -> Int[Array, "n k"]:
    """The features of ``nodes`` as whole numbers, each from its own row alone."""
    rows = unit_rows(feature_rows(graph.x, nodes, torch.device("cpu")))
    along = projection(plan)
    found = dense(rows, torch.device("cpu")) if along is None else product(rows, along)
    return clipped(with_bias(found.numpy()) * longest, longest)


def form_of_gradient(plan: Plan) -> dict[str, Form]:
    """As many whole numbers as there are weights."""
    return {"total": Ints(size_of(plan))}


@procedure(
    phase="training",
    uses=Summed,
    leaves="Once, at the start: how many training nodes you have, with noise.",
    when=in_private,
    private="charged",
)
def noisy_count(owner: PrivateOwner, ask: Ask) -> NoisyCount:
    """The number of training nodes, which one node changes by one."""
    terms = terms_of(owner.plan)
    nodes = np.array([PART * len(owner.split.train)])
    bits = owner.paid("count", terms.count, encode(ask), nodes.tobytes())
    variance = terms.variance(COUNT * terms.noise, PART)
    return NoisyCount(int(noisy(nodes, variance, bits)[0]))


@procedure(
    phase="training",
    uses=Summed,
    shapes=form_of_gradient,
    rounds=True,
    leaves="In each of {config.classifier.rounds_c} rounds: the sum of your training nodes' "
    "clipped gradients with noise, in whole numbers. All of it together is private for each "
    "node, with ε = {config.privacy.epsilon:g} and δ = {config.privacy.delta:g}.",
    when=in_private,
    private="charged",
)
def noisy_gradient(owner: PrivateOwner, asked: Weights) -> NoisyGradient:
    """The noisy sum of gradients at any weights; nodes are drawn by the owner's own key."""
    plan, terms = owner.plan, terms_of(owner.plan)
    if tuple(asked.weights.shape) != size_of(plan):
        raise PrivacyError(
            f"Weights of shape {tuple(asked.weights.shape)} were sent, but {size_of(plan)} "
            "was agreed. Nothing was sent."
        )
    if not 0 <= asked.t < terms.rounds.times:
        raise PrivacyError(
            f"Round {asked.t + 1} was asked for, but {terms.rounds.times} were agreed. Nothing "
            "was sent."
        )
    a, b = terms.bits(asked.count)
    rows, y = owner.records(a), owner.graph.y[owner.split.train]
    held = owner.checksums[a] + y.tobytes()
    once = replace(terms.rounds, times=1)
    bits = owner.paid(f"round {asked.t + 1}", once, encode(asked), held)
    drawn = bits.chosen(len(y), terms.rounds.rate)
    weights = asked.weights.double().numpy()
    total = summed_gradient(rows[drawn], y[drawn], weights, a, b)
    found = noisy(total, terms.variance(terms.noise, 2 ** (a + b)), bits)
    return NoisyGradient(torch.from_numpy(found.astype(np.int32)))  # in the ring of 32 bits


@procedure(phase="training", uses=Open, when=in_private, private="no data")
def receive_private(owner: PrivateOwner, classifier: Classifier) -> Ready:
    """Take over the classifier at the end of a private run."""
    owner.take_over(classifier.phi, classifier.moments)
    return Ready()
