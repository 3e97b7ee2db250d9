"""DataOwner: D_i with its subgraph G_i, and the procedures of Algorithm 1 that it runs.

An owner refers to no other owner and to no server. What it returns is a message.
"""

from __future__ import annotations

import torch

from fedsage.config import Config
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.graph.attach import Generated, copies, mend
from fedsage.graph.classes import class_links, class_neighbors
from fedsage.graph.graph import Graph
from fedsage.graph.split import Split
from fedsage.models.backbone import Shape, new_model
from fedsage.models.gen_learner import GenLearner, mean_of
from fedsage.models.infer import query
from fedsage.models.optimizer import load_moments, make_optimizer, moments_of
from fedsage.models.parameters import (
    Logits,
    Parameters,
    load_parameters,
    parameters_of,
    sha256_of,
)
from fedsage.models.subspace import reconstructions, sketch
from fedsage.models.train import train_epoch
from fedsage.protocol.messages import (
    Ask,
    Classifier,
    ClassifierUpdate,
    ClassLinks,
    GenDone,
    GenGradient,
    GenGradients,
    GenOffer,
    GenOffers,
    Hits,
    Mended,
    NeighGenUpdate,
    OwnerId,
    SharedNeighGen,
    Sketch,
    Subspace,
)
from fedsage.protocol.state import ClassifierState, GenState, Sketched
from fedsage.rng import generator
from fedsage.shapes import NodeIds


class DataOwner:
    """D_i. Its random streams come from ``(seed, procedure, owner, t)`` alone."""

    def __init__(
        self,
        owner: OwnerId,
        graph: Graph,
        split: Split,
        shape: Shape,
        config: Config,
        mended: Graph | None = None,
        gen: bool = False,
    ) -> None:
        self.id = owner
        self.graph = graph
        self.mended = mended
        self.split = split
        self.config, run = config, config.run
        self.seed = seed = run.seed
        self.model = new_model(shape, generator(seed, "phi"), run.device, run.kernel)
        self.optimizer = self.new_optimizer()
        self.sketched = Sketched(0, {})
        self.gen = None
        if gen:
            neighgen, fanouts = config.neighgen, config.classifier.fanouts
            self.gen = GenLearner(
                owner, graph, split.train, shape, neighgen, fanouts, seed, run.device
            )

    # NeighGen

    def local_request(self, ask: Ask) -> GenOffer:
        r"""Procedure C (LocalRequest): :math:`Z_i^t` of a batch on Ḡ_i, and :math:`H^g_i`.

        Note:
            The paper prints :math:`V_i^t \in \bar V_i^t`; we read ⊆.
        """
        self.learner.begin(ask.t)
        return GenOffer(ask.t, self.learner.embeddings(ask.t), self.learner.hg())

    def feed_forward(self, offers: GenOffers) -> GenGradients:
        r"""Procedure D (FeedForward): for every other :math:`D_j` the gradient of its L^f.

        Refuses a batch that is so small that the gradient would show single rows of X_i.
        """
        least = self.learner.settings.min_batch
        for j, offer in offers.of.items():
            if len(offer.z) < least:
                raise PrivacyError(
                    f"Owner {j} asks owner {self.id} for a gradient over {len(offer.z)} "
                    f"embeddings, but below {least} it would show single rows of features. "
                    "Raise neighgen.batch_size, leave out owners that are so small, or lower "
                    "neighgen.min_batch if you know what you do."
                )
        return GenGradients({j: self.gradient_for(j, offer) for j, offer in offers.of.items()})

    def gradient_for(self, j: OwnerId, offer: GenOffer) -> Parameters:
        """The gradient of L^f_{j,i} in H^g_j."""
        agreed = {
            name: weight.shape for name, weight in self.learner.guest.state_dict().items()
        }
        offered = {name: weight.shape for name, weight in offer.hg.items()}
        if agreed != offered:
            odd = sorted(k for k in agreed | offered if agreed.get(k) != offered.get(k))
            raise ProtocolError(
                f"Owner {j}'s generator does not fit the agreed shape: {odd[0]} is "
                f"{offered.get(odd[0])}, expected {agreed.get(odd[0])}. Do all owners use the "
                "same settings?"
            )
        return self.learner.gradient_for(j, offer.t, offer.z, offer.hg)

    def update_neighgen(self, gradient: GenGradient) -> GenDone:
        r"""Procedure E (UpdateNeighGen): one step on Eq. (5) with its L^f taken from Eq. (6).

        .. math::
            \nabla \mathcal{L}_i = \nabla (\lambda^d \mathcal{L}^d + \lambda^f \mathcal{L}^f
            + \lambda^c \mathcal{L}^c) + \lambda^f \alpha \nabla \mathcal{L}^f_{i,J}

        Note:
            The paper names Eq. (6) alone; dGen and the local classifier must learn too. α is
            applied here and nowhere else. The others' gradient is one in H^g_i: it takes z_v
            as given, as they do. Where an owner makes several steps a round, the first has
            that gradient, the others are on Eq. (5) with Eq. (4).
        """
        settings = self.learner.settings
        weight = settings.alpha * settings.lambda_f
        return self.local_steps(gradient.t, gradient.hg, weight)

    def update_shared_neighgen(self, shared: SharedNeighGen) -> NeighGenUpdate:
        """FedAvg of NeighGen, the paper's ablation: train what everybody shares on Eq. (5).

        Note:
            The paper averages φ of Eq. (5) as well. Ours stays with the owner, as in FedSage+,
            so that the two differ in NeighGen alone.
        """
        load_parameters(self.learner.neighgen, shared.theta)
        self.learner.begin(shared.t)
        done = self.local_steps(shared.t, {}, 0.0)
        return NeighGenUpdate(parameters_of(self.learner.neighgen), done)

    def local_steps(self, t: int, others: Parameters, weight: float) -> GenDone:
        """The steps of one round, the first with the others' gradient."""
        steps = range(self.learner.settings.local_steps)
        done = [self.learner.step(t, k, others if k == 0 else {}, weight) for k in steps]
        return GenDone(
            loss=mean_of([losses.joint for losses in done]),
            degree=mean_of([losses.degree for losses in done]),
            feature=mean_of([losses.feature for losses in done]),
            classification=mean_of([losses.classification for losses in done]),
        )

    @property
    def learner(self) -> GenLearner:
        """What NeighGen needs; only methods that train one have it."""
        if self.gen is None:
            raise ProtocolError(
                f"Owner {self.id} was set up for a method without NeighGen. Start it with the "
                "settings of the run."
            )
        return self.gen

    # mending

    def mend_graph(self, ask: Ask) -> Mended:
        """Algorithm 1, line 3: retrieve G'_i by NeighGen_i."""
        return self.attach(self.learner.generated())

    def receive_shared_neighgen(self, shared: SharedNeighGen) -> Mended:
        """Retrieve G'_i by the NeighGen that everybody shares."""
        load_parameters(self.learner.neighgen, shared.theta)
        return self.attach(self.learner.generated())

    def mend_by_copies(self, ask: Ask) -> Mended:
        """Attach copies of the owner's own nodes: no generator at all."""
        return self.attach(copies(self.graph, self.config.mend.leaves))

    def count_class_links(self, ask: Ask) -> ClassLinks:
        """Links from class to class between training nodes."""
        return ClassLinks(torch.from_numpy(class_links(self.graph, self.split.train)))

    def mend_by_classes(self, links: ClassLinks) -> Mended:
        """Attach own training rows of the classes that all owners' links make likely."""
        stream = generator(self.seed, "mend by classes", self.id)
        drawn = class_neighbors(
            self.graph, self.split.train, links.count.numpy(), self.config.mend.leaves, stream
        )
        return self.attach(drawn)

    def sketch_features(self, subspace: Subspace) -> Sketch:
        """This owner's part of a step towards the common subspace.

        Nothing but zeros once all answers together would have more columns than half the
        owner's nodes: as many as nodes would span every row of X_i. The same basis again,
        after a restart, has the same answer and counts once.
        """
        basis, known = subspace.basis, sha256_of({"": subspace.basis})
        if known not in self.sketched.answered:
            columns = self.sketched.columns + basis.shape[1]
            within = 2 * columns <= self.graph.num_nodes
            answered = self.sketched.answered | {known: within}
            self.sketched = Sketched(columns, answered)
        if not self.sketched.answered[known]:
            return Sketch(torch.zeros_like(basis))
        return Sketch(sketch(self.graph.x, basis))

    def mend_by_subspace(self, subspace: Subspace) -> Mended:
        """Attach to every node what the common subspace makes of it."""
        return self.attach(reconstructions(self.graph, subspace.basis))

    def attach(self, generated: Generated) -> Mended:
        """Make G'_i of G_i."""
        self.mended = mend(self.graph, generated)
        return Mended()

    # what it takes to go on after a restart

    def gen_state(self) -> GenState:
        """NeighGen after a round."""
        return self.learner.state()

    def restore_gen(self, state: GenState) -> None:
        """Go on from there."""
        self.learner.restore(state)

    def classifier_state(self) -> ClassifierState:
        """What procedure F leaves with this owner alone: its optimizer's memory."""
        return ClassifierState(moments_of(self.optimizer, self.model))

    def restore_classifier(self, state: ClassifierState) -> None:
        """Go on from there; φ itself comes from the server."""
        load_moments(self.optimizer, self.model, state.moments)

    # the classifier

    def receive_classifier(self, classifier: Classifier) -> Hits:
        """Procedure B, received: take over φ and say how well it does on validation nodes."""
        load_parameters(self.model, classifier.phi)
        if self.config.classifier.moments == "averaged":
            load_moments(self.optimizer, self.model, classifier.moments)
        elif self.config.classifier.moments == "reset":
            self.optimizer = self.new_optimizer()
        return self.hits(self.split.val)

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        r"""Procedure F (LocalUpdateC): train φ on G'_i, or G_i where nothing is mended.

        .. math::
            \phi_i \gets \phi - \eta \nabla l(\phi | \{(G'_i(v), y_v) | v \in V_i^t\})

        Note:
            V_i^t is every training node once, in batches; with Adam in place of the plain
            gradient step, as in the paper's experiments. Mixed by ``rounds``, every second
            round trains on G_i in place of G'_i; by ``epochs``, every epoch on G'_i is
            followed by one on G_i.
        """
        loss = 0.0
        for epoch in range(self.config.classifier.local_epochs):
            for name, graph in self.trained_on(ask.t).items():
                stream = generator(self.seed, name, self.id, ask.t, epoch)
                given = self.split.train, self.config.classifier, stream
                loss = train_epoch(self.model, self.optimizer, graph, *given)
        averaged = self.config.classifier.moments == "averaged"
        by_nodes = self.config.classifier.weighting == "nodes"
        return ClassifierUpdate(
            phi=parameters_of(self.model),
            moments=moments_of(self.optimizer, self.model) if averaged else {},
            weight=float(len(self.split.train)) if by_nodes else 1.0,
            loss=loss,
        )

    def test_classifier(self, ask: Ask) -> Hits:
        """How many of the owner's test nodes φ gets right on what it holds."""
        return self.hits(self.split.test)

    def trained_on(self, t: int) -> dict[str, Graph]:
        """The graphs that an epoch of round t goes over, by the name of their stream."""
        plain = {"local_update_c": self.graph}
        if self.mended is None:
            return plain
        mended = {"local_update_c, mended": self.mended}
        if self.config.mend.mix == "rounds":
            return plain if t % 2 else mended
        return mended | plain if self.config.mend.mix == "epochs" else mended

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
        """An optimizer that remembers nothing."""
        settings = self.config.classifier
        return make_optimizer(
            self.model, settings.optimizer, settings.eta, settings.weight_decay
        )
