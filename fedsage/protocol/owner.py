"""DataOwner: D_i with its subgraph G_i, and the procedures of Algorithm 1 that it runs.

An owner refers to no other owner and to no server. What it returns is a message.
"""

from __future__ import annotations

import torch

from fedsage.graph.graph import Graph
from fedsage.graph.split import Split
from fedsage.models.graphsage import GraphSage, SageShape
from fedsage.models.infer import predicted_labels
from fedsage.models.optimizer import load_moments, make_optimizer, moments_of
from fedsage.models.parameters import parameters_of
from fedsage.models.train import train_epoch
from fedsage.models.training import Training
from fedsage.protocol.messages import Ask, Classifier, ClassifierUpdate, Hits, OwnerId
from fedsage.rng import generator
from fedsage.shapes import NodeIds


class DataOwner:
    """D_i. Its random streams come from ``(seed, procedure, owner, t)`` alone."""

    def __init__(
        self,
        owner: OwnerId,
        graph: Graph,
        split: Split,
        shape: SageShape,
        training: Training,
        seed: int,
        mended: Graph | None = None,
    ) -> None:
        self.id = owner
        self.graph = graph
        self.mended = mended
        self.split = split
        self.training = training
        self.seed = seed
        self.model = GraphSage(shape, generator(seed, "phi")).to(training.device)
        self.optimizer = self.new_optimizer()

    def receive_classifier(self, classifier: Classifier) -> Hits:
        """Procedure B, received: take over φ and say how well it does on validation nodes."""
        self.model.load_state_dict(classifier.phi)
        if self.training.moments == "averaged":
            load_moments(self.optimizer, self.model, classifier.moments)
        elif self.training.moments == "reset":
            self.optimizer = self.new_optimizer()
        return self.hits(self.split.val)

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        r"""Procedure F (LocalUpdateC): train φ on G'_i, or G_i where nothing is mended.

        .. math::
            \phi_i \gets \phi - \eta \nabla l(\phi | \{(G'_i(v), y_v) | v \in V_i^t\})

        Note:
            V_i^t is every training node once, in batches; with Adam in place of the plain
            gradient step, as in the paper's experiments. With ``mix`` every epoch on G'_i is
            followed by one on G_i.
        """
        loss = 0.0
        for epoch in range(self.training.local_epochs):
            for name, graph in self.trained_on().items():
                stream = generator(self.seed, name, self.id, ask.t, epoch)
                loss = train_epoch(
                    self.model, self.optimizer, graph, self.split.train, self.training, stream
                )
        averaged = self.training.moments == "averaged"
        by_nodes = self.training.weighting == "nodes"
        return ClassifierUpdate(
            phi=parameters_of(self.model),
            moments=moments_of(self.optimizer, self.model) if averaged else {},
            weight=float(len(self.split.train)) if by_nodes else 1.0,
            loss=loss,
        )

    def test_classifier(self, ask: Ask) -> Hits:
        """How many of the owner's test nodes φ gets right on G_i."""
        return self.hits(self.split.test)

    def trained_on(self) -> dict[str, Graph]:
        """The graphs that an epoch goes over, by the name of their random stream."""
        plain = {"local_update_c": self.graph}
        if self.mended is None:
            return plain
        mended = {"local_update_c, mended": self.mended}
        return mended | plain if self.training.mix else mended

    def hits(self, nodes: NodeIds) -> Hits:
        """How many of ``nodes`` the classifier gets right, queried on G_i and on G'_i."""
        correct = self.correct(self.graph, nodes)
        mended = correct if self.mended is None else self.correct(self.mended, nodes)
        return Hits(correct, mended, len(nodes))

    def correct(self, graph: Graph, nodes: NodeIds) -> int:
        """How many of ``nodes`` the classifier gets right on ``graph``."""
        stream = generator(self.seed, "query", self.id)
        predicted = predicted_labels(self.model, graph, nodes, self.training, stream)
        return int((predicted == self.graph.y[nodes]).sum())

    def new_optimizer(self) -> torch.optim.Optimizer:
        """An optimizer that remembers nothing."""
        settings = self.training
        return make_optimizer(
            self.model, settings.optimizer, settings.eta, settings.weight_decay
        )
