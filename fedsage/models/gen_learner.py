"""NeighGen at one owner: its weights, its optimizer, the nodes it hides from itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fedsage.config import NeighGenConfig
from fedsage.graph.arrays import squared_norms
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, Impaired, impair
from fedsage.models.backbone import Shape, new_model
from fedsage.models.gen_training import (
    Batch,
    Losses,
    add_gradients,
    draw_batch,
    embed,
    generated_neighbors,
    joint_losses,
)
from fedsage.models.losses import cross_subgraph_feature_loss
from fedsage.models.neighgen import FIRST, Embeddings, Held, Hg, NeighGen, first_held
from fedsage.models.optimizer import load_moments, make_optimizer, moments_of
from fedsage.models.parameters import Parameters, load_parameters, parameters_of
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds


@dataclass(frozen=True, slots=True)
class GenState:
    """A GenLearner between two rounds."""

    weights: Parameters  # of NeighGen, and of the φ in Eq. (5)
    moments: Parameters
    picked: Int[Tensor, " nodes"]  # nodes that were ever the nearest to what others generated
    told: Parameters  # H^g_i as others hold it; empty if they hold nothing
    told_at: int  # in which round they got it


class GenLearner:
    """What procedures C, D and E work on; streams depend only on ``(seed, owner, t)``."""

    def __init__(
        self,
        owner: int,
        graph: Graph,
        train: NodeIds,
        shape: Shape,
        neighgen: NeighGenConfig,
        fanouts: Sequence[int],
        seed: int,
        device: str,
        own_seed: int,
    ) -> None:
        self.owner, self.graph, self.settings, self.seed = owner, graph, neighgen, seed
        self.own_seed = own_seed  # for draws that others need not repeat
        self.fanouts, self.device = fanouts, torch.device(device)
        self.is_train: Bool[Array, " V"] = np.zeros(graph.num_nodes, dtype=bool)
        self.is_train[train] = True
        self.neighgen = NeighGen(shape.num_features, neighgen, generator(seed, "theta"))
        self.classifier = new_model(shape, generator(seed, "phi"))  # for L^c; never leaves
        self.models = torch.nn.ModuleList([self.neighgen, self.classifier]).to(self.device)
        self.optimizer = make_optimizer(self.models, "adam", neighgen.eta, 0.0)
        self.guest = Hg(shape.num_features, neighgen, generator(seed, "theta")).to(self.device)
        self.squares = squared_norms(graph.x)
        self.picked: Bool[Array, " V"] = np.zeros(graph.num_nodes, dtype=bool)
        self.impaired = self.impair(0)
        self.held: dict[int, Held] = {}  # H^g of all owners, as all others have it
        self.asked: tuple[int, Parameters] = (FIRST, {})  # a round, and the frame for answers
        self.signature = ""  # under its last offer, if that was sealed
        self.answered = FIRST  # the last round whose sealed offers it answered

    def state(self) -> GenState:
        """Weights, moments, the nodes that were ever the nearest, and what others hold."""
        picked = torch.from_numpy(np.flatnonzero(self.picked))
        weights, moments = parameters_of(self.models), moments_of(self.optimizer, self.models)
        told = self.held.get(self.owner, Held(FIRST, {}))
        return GenState(weights, moments, picked, told.hg, told.t)

    def restore(self, state: GenState) -> None:
        """Continue from that state."""
        self.models.load_state_dict(state.weights)
        load_moments(self.optimizer, self.models, state.moments)
        self.picked[:] = False
        self.picked[state.picked.numpy()] = True
        self.held = {self.owner: Held(state.told_at, state.told)} if state.told else {}

    def impair(self, t: int) -> Impaired:
        """Ḡ_i of round t."""
        return impair(
            self.graph,
            self.settings.hide_ratio,
            generator(self.own_seed, "impair", self.owner, t),
        )

    def begin(self, t: int) -> None:
        """Hide other nodes, if every round is to hide its own."""
        if self.settings.fresh:
            self.impaired = self.impair(t)

    def batch(self, t: int, step: int = 0) -> Batch:
        """V_i^t of one step."""
        stream = generator(self.own_seed, "local_request", self.owner, t, step)
        return draw_batch(
            self.impaired, self.settings.batch_size, self.fanouts, self.device, stream
        )

    @torch.no_grad()
    def embeddings(self, t: int) -> Embeddings:
        """Procedure C's Z_i^t."""
        return embed(self.neighgen, self.batch(t)).cpu()

    def hg(self) -> Parameters:
        """A copy of the weights of H^g_i."""
        return parameters_of(self.neighgen.hg)

    def known(self, owner: int) -> Held:
        """H^g of an owner as this one holds it."""
        first = (self.graph.num_features, self.settings, self.seed)
        return self.held.get(owner) or first_held(*first)

    def gradient_for(self, other: int, t: int, z: Embeddings, hg: Parameters) -> Parameters:
        """Procedure D for one other owner: the gradient of L^f_{other, i} in its H^g."""
        gradient, found = self.gradient_at(other, t, z, hg)
        self.picked[found] = True
        return gradient

    def gradient_at(
        self, other: int, t: int, z: Embeddings, hg: Parameters
    ) -> tuple[Parameters, NodeIds]:
        """The gradient of L^f_{other, i}, and the nodes that were nearest.

        Note:
            It is zero if fewer than ``min_batch`` neighbors are generated from ``z``: it would
            depend on so few rows of X_i that it could reveal them.
        """
        load_parameters(self.guest, hg)
        z = z.to(self.device)
        rows, of = self.guest(z, noise_stream(self.seed, other, t))
        named = dict(self.guest.named_parameters())
        fgen = {name: weight for name, weight in named.items() if name.startswith("fgen.")}
        if len(of) < self.settings.min_batch:
            zeros = {name: torch.zeros_like(weight).cpu() for name, weight in fgen.items()}
            return zeros, np.empty(0, dtype=np.int64)
        loss, found = cross_subgraph_feature_loss(
            rows, len(z), self.graph.x, self.squares, self.settings.memory_mb * 2**20
        )
        gradients = torch.autograd.grad(loss, list(fgen.values()))
        return {name: each.cpu() for name, each in zip(fgen, gradients, strict=True)}, found

    def step(self, t: int, step: int, others: Parameters, weight: float) -> Losses:
        """One optimizer step on Eq. (5), with ``weight`` times the others' gradient in H^g."""
        losses = joint_losses(
            self.neighgen,
            self.classifier,
            self.impaired,
            self.batch(t, step),
            self.is_train,
            self.settings,
            noise_stream(self.seed, self.owner, t, step),
        )
        self.optimizer.zero_grad()
        losses.joint.backward()  # type: ignore[no-untyped-call]
        add_gradients(self.neighgen.hg, others, weight)
        self.optimizer.step()
        return losses

    def generated(self) -> Generated:
        """The neighbors that NeighGen_i attaches to G_i."""
        stream = generator(self.own_seed, "mend", self.owner)
        return generated_neighbors(self.neighgen, self.graph, self.settings, stream)


def noise_stream(seed: int, owner: int, t: int, step: int = 0) -> np.random.Generator:
    """The noise of H^g_i in one step: D_i and every D_j draw the same."""
    return generator(seed, "noise", owner, t, step)


def mean_of(terms: list[Tensor]) -> float:
    """The mean of some losses."""
    return float(torch.stack([term.detach() for term in terms]).mean())
