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
    ) -> None:
        self.id = owner
        self.graph = graph
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
        r"""Procedure F (LocalUpdateC): train φ on G_i for ``local_epochs``.

        .. math::
            \phi_i \gets \phi - \eta \nabla l(\phi | \{(G_i(v), y_v) | v \in V_i^t\})

        Note:
            V_i^t is every training node once, in batches; with Adam in place of the plain
            gradient step, as in the paper's experiments.
        """
        loss = 0.0
        for epoch in range(self.training.local_epochs):
            stream = generator(self.seed, "local_update_c", self.id, ask.t, epoch)
            loss = train_epoch(
                self.model,
                self.optimizer,
                self.graph,
                self.split.train,
                self.training,
                stream,
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

    def hits(self, nodes: NodeIds) -> Hits:
        """How many of ``nodes`` the classifier gets right, queried on G_i."""
        stream = generator(self.seed, "query", self.id)
        predicted = predicted_labels(self.model, self.graph, nodes, self.training, stream)
        return Hits(int((predicted == self.graph.y[nodes]).sum()), len(nodes))

    def new_optimizer(self) -> torch.optim.Optimizer:
        """An optimizer that remembers nothing."""
        settings = self.training
        return make_optimizer(
            self.model, settings.optimizer, settings.eta, settings.weight_decay
        )
