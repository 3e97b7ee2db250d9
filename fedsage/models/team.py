"""Several classifiers in one: trained together, each by its own loss, their answers mixed.

None learns from what the others answer. Where they make different mistakes, the mixture makes
fewer than any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.graph.graph import Graph
from fedsage.graph.sampling import Hop
from fedsage.models.backbone import Backbone, Shape, backbone
from fedsage.models.graphsage import GraphSage
from fedsage.models.losses import ClassWeights
from fedsage.models.parameters import Inputs, Logits
from fedsage.shapes import Array, NodeIds


class Team(Backbone):
    """Classifiers that share no weights, each with draws of its own."""

    @property
    def members(self) -> Sequence[Backbone]:
        """The classifiers; the first one's head is the team's."""
        raise NotImplementedError

    @property
    def shares(self) -> Sequence[float]:
        """How much each answer counts."""
        return [1 / len(self.members)] * len(self.members)

    @property
    def head(self) -> nn.Module:
        """What goes into it is a node's embedding."""
        found = self.members[0].head
        assert isinstance(found, nn.Module)
        return found

    @property
    def reach(self) -> int | None:
        """The farthest of all."""
        reaches = [member.reach for member in self.members]
        return None if None in reaches else max(one for one in reaches if one is not None)

    def mixed(self, answers: Sequence[Logits]) -> Logits:
        r"""The logarithms of all answers: :math:`\sum_k s_k \log \mathrm{Softmax}(z_k)`."""
        parts = zip(self.shares, answers, strict=True)
        return torch.stack([share * one.log_softmax(dim=1) for share, one in parts]).sum(dim=0)

    def on_hops(
        self, rows: Inputs, hops: Sequence[Hop], generator: np.random.Generator | None = None
    ) -> Logits:
        """The answers for a batch, mixed."""
        return self.mixed([one.on_hops(rows, hops, generator) for one in self.members])

    def on_graph(self, graph: Graph, nodes: NodeIds | None = None) -> Logits:
        """The answers from all neighbors, mixed."""
        self.tell_members()
        return self.mixed([one.on_graph(graph, nodes) for one in self.members])

    def on_mended(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        generated: Float[Tensor, "generated d_x"],
        of: Int[Array, " generated"],
    ) -> Logits:
        """The answers for a batch with generated neighbors, mixed."""
        return self.mixed([one.on_mended(rows, hops, generated, of) for one in self.members])

    def batch_loss(
        self,
        rows: Inputs,
        hops: Sequence[Hop],
        y: Int[Tensor, " batch"],
        weights: ClassWeights | None,
        generator: np.random.Generator,
    ) -> Float[Tensor, ""]:
        """The sum of the losses."""
        seen = {True: (rows, hops), False: (rows[: len(y)], ())}  # with and without links
        given = [seen[member.trains_on_links] for member in self.members]
        streams = own_draws(generator, len(self.members))
        losses = [
            member.batch_loss(*inputs, y, weights, stream)
            for member, inputs, stream in zip(self.members, given, streams, strict=True)
        ]
        return torch.stack(losses).sum()

    def apart(
        self, generator: np.random.Generator
    ) -> Sequence[tuple[Backbone, np.random.Generator]]:
        """Every member, with its draws: steps of one, then of the next."""
        self.tell_members()
        return list(zip(self.members, own_draws(generator, len(self.members)), strict=True))

    def tell_members(self) -> None:
        """Let each use the kernel that was chosen for all, if it can."""
        for member in self.members:
            member.kernel = self.kernel if member.uncompiled() is None else "torch"

    def uncompiled(self) -> str | None:
        """The first thing that a member has no compiled code for."""
        reasons = (member.uncompiled() for member in self.members)
        return next((reason for reason in reasons if reason), None)


def own_draws(generator: np.random.Generator, count: int) -> list[np.random.Generator]:
    """As many streams that have nothing in common; the first is the one that goes on."""
    bits = generator.bit_generator
    assert isinstance(bits, np.random.PCG64)  # as all our streams are
    return [generator, *(np.random.Generator(bits.jumped(k)) for k in range(1, count))]


@backbone("ensemble")
class Ensemble(Team):
    """As many GraphSage classifiers as ``model.ensemble``, which begin with other weights."""

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        count = shape.model.ensemble
        self.sages = nn.ModuleList(GraphSage(shape, generator) for _ in range(count))

    @property
    def members(self) -> Sequence[Backbone]:
        """All alike."""
        return [one for one in self.sages if isinstance(one, GraphSage)]
