"""DataOwner: D_i (a client) with its subgraph G_i, and the classifier's procedures it runs.

An owner refers to no other owner and to no server. What it returns is a message. How it mends
its graph is in ``mending/``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from fedsage.config import Config
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, mend
from fedsage.graph.split import Split
from fedsage.models.backbone import new_model, query
from fedsage.models.losses import ClassWeights
from fedsage.models.optimizer import load_moments, make_optimizer, moments_of
from fedsage.models.parameters import Logits, Parameters, load_parameters, parameters_of
from fedsage.models.self_training import (
    NO_GUESSES,
    Guesses,
    candidates,
    guesses,
    has_begun,
    labels_are_few,
)
from fedsage.models.train import LocalTerm, train_epoch
from fedsage.protocol.guard import (
    form_of_update,
    no_hits,
    sizes_of_update,
    strange_update,
    too_many_hits,
    too_many_in_all,
)
from fedsage.protocol.messages import (
    NO_HITS,
    Ask,
    Classifier,
    ClassifierUpdate,
    Hits,
    Mended,
    OwnerId,
)
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Kept, Summed, in_full, procedure
from fedsage.rng import generator
from fedsage.shapes import NodeIds

if TYPE_CHECKING:
    from fedsage.protocol.hidden_sums.masks import Masks
    from fedsage.protocol.letters import Abroad

Part = TypeVar("Part", bound=Kept)


@dataclass(frozen=True, slots=True)
class MomentsState:
    """What procedure F leaves with an owner alone: its optimizer's moments."""

    moments: Parameters


@dataclass(frozen=True, slots=True)
class OwnMoments:
    """Keeps the optimizer's moments across restarts, if they are not averaged."""

    owner: DataOwner

    def state(self) -> MomentsState | None:
        """The moments, or None if the server has them too."""
        owner = self.owner
        if owner.config.classifier.moments != "own":
            return None
        return MomentsState(moments_of(owner.optimizer, owner.model))

    def restore(self, state: MomentsState) -> None:
        """Continue with those moments; φ itself comes from the server."""
        load_moments(self.owner.optimizer, self.owner.model, state.moments)


def words_of_update(config: Config) -> str:
    """What leaves in a round; whether moments do depends on the settings."""
    averaged = config.classifier.moments == "averaged"
    moments = ", the optimizer's averages of gradients" if averaged else ""
    return (
        f"In each of {config.classifier.rounds_c} rounds: the classifier's weights after "
        f"training on {trained_nodes(config)}{moments}, and the mean training loss."
    )


def trained_nodes(config: Config) -> str:
    """Which nodes the classifier learns from, in words for their owner."""
    guessed = config.classifier.self_training > 0
    return "your nodes" + " (also on those without a training label)" * guessed


class DataOwner:
    """D_i. Its random streams depend only on ``(seed, procedure, owner, t)``."""

    def __init__(
        self,
        owner: OwnerId,
        graph: Graph,
        split: Split,
        plan: Plan,
        mended: Graph | None = None,
    ) -> None:
        self.id, self.graph, self.split, self.mended = owner, graph, split, mended
        self.plan, self.config, self.seed = plan, plan.config, plan.seed
        run = plan.config.run
        self.model = new_model(plan.shape, plan.stream("phi"), run.device, run.kernel)
        self.optimizer = self.new_optimizer()
        self.parts: dict[str, Kept] = {}
        self.remembered: Parameters = {}  # by mending, for nodes that come after the run
        self.class_weights: ClassWeights | None = None  # if all classes weigh the same
        self.term: LocalTerm | None = None  # what a method adds to each step
        self.guessed = NO_GUESSES  # that the last round trained on
        self.foreign = False  # whether φ may not come from sums, as far as it can tell
        self.tested = False
        self.fewest = 0  # nodes; it counts no answers for fewer
        self.measured: set[str] = set()  # questions about answers, each answered once
        self.scored, self.updates = 0, 1  # how often φ was scored, and may be
        self.sum_masks: Masks | None = None  # where sums are hidden
        self.abroad: Abroad | None = None  # what it knows of other owners' nodes

    def part(self, name: str, make: Callable[[], Part]) -> Part:
        """State that a way of mending keeps with this owner, made when first asked for."""
        if name not in self.parts:
            self.parts[name] = make()
        found: Part = self.parts[name]  # type: ignore[assignment]
        return found

    def attach(self, generated: Generated) -> Mended:
        """Make G'_i from G_i."""
        self.mended = mend(self.graph, generated)
        return Mended()

    @procedure(
        phase="training",
        uses=Summed,
        after=("receive_classifier",),
        shapes=form_of_update,
        check=strange_update,
        sizes=sizes_of_update,
        keeps=OwnMoments,
        leaves=words_of_update,
        when=in_full,
    )
    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        r"""Procedure F (LocalUpdateC): train φ on G'_i, or on G_i if nothing is mended.

        .. math::
            \phi_i \gets \phi - \eta \nabla l(\phi | \{(G'_i(v), y_v) | v \in V_i^t\})

        Note:
            V_i^t is every training node once, in batches; with Adam instead of the plain
            gradient step, as in the paper's experiments. If mixed by ``rounds``, every second
            round trains on G_i instead of G'_i; by ``epochs``, every epoch on G'_i is followed
            by one on G_i.
        """
        how, loss = self.config.classifier.at(ask.round), 0.0
        self.updates += 1
        self.guessed = self.guesses(ask)
        nodes = np.concatenate([self.split.train, self.guessed.nodes])
        graphs = {name: self.guessed.on(one) for name, one in self.trained_on(ask.t).items()}
        for epoch in range(self.epochs):
            for name, graph in graphs.items():
                stream = generator(self.seed, name, self.id, ask.t, epoch)
                given = nodes, how, stream, self.class_weights, self.term
                loss = train_epoch(self.model, self.optimizer, graph, *given)
        averaged = how.moments == "averaged" and in_full(self.config)
        return ClassifierUpdate(
            phi=parameters_of(self.model),
            moments=moments_of(self.optimizer, self.model) if averaged else {},
            weight=self.weight if how.weighting == "nodes" else 1.0,
            loss=loss,
        )

    @procedure(
        phase="training",
        uses=Summed,
        check=too_many_hits,
        leaves="In each of these rounds: how many of your validation nodes the shared "
        "classifier gets right.",
        when=in_full,
    )
    def receive_classifier(self, classifier: Classifier) -> Hits:
        """Procedure B, received: take over φ and count its hits on validation nodes.

        Only once for each update: counts for arbitrary φ would reveal rows.
        """
        self.take_over(classifier.phi, classifier.moments)
        if self.scored >= self.updates:
            return NO_HITS
        self.scored += 1
        return self.hits(self.split.val)

    def take_over(self, phi: Parameters, memory: Parameters) -> None:
        """Hold φ, and the averaged moments if there are any."""
        load_parameters(self.model, phi)
        moments = self.config.classifier.moments
        if moments == "averaged":
            load_moments(self.optimizer, self.model, memory)
        elif moments == "reset":
            self.optimizer = self.new_optimizer()

    @procedure(
        phase="evaluation",
        uses=Summed,
        after=("receive_classifier", "receive_change"),
        check=too_many_hits,
        check_sum=too_many_in_all,
        silent=no_hits,
        leaves="At the end: how many of your test nodes the classifier gets right.",
    )
    def test_classifier(self, ask: Ask) -> Hits:
        """How many of the owner's test nodes φ gets right on its graph; answered only once."""
        told, self.tested = self.tested, True
        few = len(self.split.test) < self.fewest
        return NO_HITS if told or few or self.foreign else self.hits(self.split.test)

    def guesses(self, ask: Ask) -> Guesses:
        """Answers of the shared classifier that this round trains on as if they were labels."""
        how, train, count = self.config.classifier, self.split.train, self.graph.num_nodes
        wanted = how.self_training and labels_are_few(len(train), count)
        if not wanted or not has_begun(ask.round, how.rounds_c):
            return NO_GUESSES
        stream = generator(self.seed, "guesses", self.id, ask.t)
        nodes = candidates(count, train, stream)
        views = [graph for graph in (self.graph, self.mended) if graph is not None]
        answers = torch.stack([self.answers(graph, nodes) for graph in views]).mean(dim=0)
        return guesses(nodes, answers, len(train), how.self_training, stream)

    def trained_on(self, t: int) -> dict[str, Graph]:
        """The graphs that an epoch of round t trains on, by the name of their stream."""
        plain = {"local_update_c": self.graph}
        if self.mended is None:
            return plain
        mended = {"local_update_c, mended": self.mended}
        mix = self.config.mend.mix
        if mix == "rounds":
            return plain if t % 2 else mended
        return mended | plain if mix == "epochs" else mended

    @property
    def weight(self) -> float:
        """How many training nodes it has, or said that it has before some were dropped."""
        return self.plan.weights.get(self.id, float(len(self.split.train)))

    def steps(self, t: int) -> int:
        """How many steps the optimizer took in round ``t``, the last one."""
        nodes = len(self.split.train) + len(self.guessed.nodes)
        return self.epochs * len(self.trained_on(t)) * self.batches(nodes)

    def batches(self, nodes: int) -> int:
        """How many steps the optimizer takes in an epoch over so many nodes."""
        return -(-nodes // self.config.classifier.batch_for(nodes))

    @property
    def epochs(self) -> int:
        """How many epochs there are in a round: more if its own labels fit into one step."""
        return self.config.classifier.epochs(self.batches(len(self.split.train)))

    def hits(self, nodes: NodeIds) -> Hits:
        """How many of ``nodes`` the classifier gets right on G_i, on G'_i, and by both."""
        y = torch.from_numpy(self.graph.y[nodes])

        def right(answers: Logits) -> int:
            return int((answers.argmax(dim=1) == y).sum())

        plain = self.answers(self.graph, nodes)
        if self.mended is None:
            found = right(plain)
            return Hits(found, found, found, len(nodes))
        mended = self.answers(self.mended, nodes)
        return Hits(right(plain), right(mended), right(plain + mended), len(nodes))

    def answers(self, graph: Graph, nodes: NodeIds) -> Logits:
        """The logarithm of Softmax(h^K) of ``nodes`` on ``graph``."""
        stream = generator(self.seed, "query", self.id)
        inference, fanouts = self.config.evaluation.inference, self.config.classifier.fanouts
        logits = query(self.model, graph, nodes, inference, fanouts, stream)
        return logits.log_softmax(dim=1).cpu()

    def new_optimizer(self) -> torch.optim.Optimizer:
        """An optimizer without moments."""
        how = self.config.classifier
        return make_optimizer(self.model, how.optimizer, how.eta, how.weight_decay)
