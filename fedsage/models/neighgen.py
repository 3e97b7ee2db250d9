"""NeighGen (Sec. 4.1): the encoder H^e and the generator H^g = {dGen, fGen}, Eq. (3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.config import ModelConfig, NeighGenConfig
from fedsage.models.backbone import Shape
from fedsage.models.graphsage import GraphSage
from fedsage.models.layers import glorot
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.rng import generator
from fedsage.shapes import Array

ONE_NEIGHBOR = math.log(math.e - 1)  # where softplus is one
Embeddings: TypeAlias = Float[Tensor, "batch d_z"]  # Z_i^t
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "linear": torch.clone,
}
FIRST = -1  # the round before the first


class Encoder(GraphSage):
    """H^e: a K-layer GraphSage on the impaired graph; z_v = h_v^K. Never leaves the owner."""

    def __init__(
        self, num_features: int, neighgen: NeighGenConfig, generator: np.random.Generator
    ) -> None:
        model = ModelConfig(widths=neighgen.widths, head="direct")
        super().__init__(Shape(num_features, neighgen.widths[-1], model), generator)
        self.kernel = "torch"


class DGen(nn.Module):
    """dGen: how many neighbors a node misses; a linear regression on z_v."""

    def __init__(self, d_z: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.theta_d = nn.Parameter(glorot(d_z, 1, generator)[:, 0])
        self.bias = nn.Parameter(torch.tensor(ONE_NEIGHBOR))

    def forward(self, z: Embeddings) -> Float[Tensor, " batch"]:
        r"""Eq. (3) left, :math:`\widetilde n_v = \sigma((\theta^d)^T \cdot z_v)`.

        Note:
            The paper prints n_v, dGen's own target, instead of z_v. σ is softplus, a ReLU whose
            gradient never vanishes: most nodes miss no neighbor, and a ReLU that once predicts
            zero for all of them always will. We add a bias, which starts at one neighbor.
        """
        return F.softplus(z @ self.theta_d + self.bias)


class FGen(nn.Module):
    """fGen: features of one missing neighbor from z_v and noise."""

    def __init__(
        self, num_features: int, neighgen: NeighGenConfig, generator: np.random.Generator
    ) -> None:
        super().__init__()
        sizes = (neighgen.widths[-1], *neighgen.hidden, num_features)
        self.theta_f = nn.ParameterList(
            nn.Parameter(glorot(a, b, generator)) for a, b in pairwise(sizes)
        )
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes[1:])
        self.output = neighgen.output

    def forward(
        self, z: Float[Tensor, "rows d_z"], noise: Float[Tensor, "rows d_z"]
    ) -> Float[Tensor, "rows d_x"]:
        r"""Eq. (3) right, :math:`\sigma((\theta^f)^T \cdot (z_v + \mathbf{N}(0, 1)))`.

        Note:
            The paper draws one noise vector for each node and lets fGen output many neighbors
            at once. Ours outputs one, and is called with fresh noise for each neighbor: the
            same weights serve them all, so that far fewer are exchanged.

            In memory, a feature's values for all neighbors are contiguous, as the search for
            the nearest node reads them.
        """
        h = z + noise
        for theta_f, bias in zip(self.theta_f[:-1], self.bias[:-1], strict=True):
            h = torch.relu(torch.addmm(bias, h, theta_f))
        columns = torch.addmm(self.bias[-1][:, None], self.theta_f[-1].T, h.T)
        return ACTIVATIONS[self.output](columns).T


class Hg(nn.Module):
    """H^g = {dGen, fGen}: the part that other owners may run."""

    def __init__(
        self, num_features: int, neighgen: NeighGenConfig, generator: np.random.Generator
    ) -> None:
        super().__init__()
        self.settings = neighgen
        self.dgen = DGen(neighgen.widths[-1], generator)
        self.fgen = FGen(num_features, neighgen, generator)

    def forward(
        self, z: Embeddings, generator: np.random.Generator
    ) -> tuple[Float[Tensor, "rows d_x"], Int[Array, " rows"]]:
        """Generated neighbors of the nodes whose embeddings are ``z``.

        The same ``z``, weights and stream give the same neighbors anywhere.

        Returns:
            All x̃_v^p, one after the other, and for each of them the row of its v in ``z``.
        """
        num_generated = whole_counts(self.dgen(z).detach(), self.settings, generator)
        of = sample_rows(num_generated)
        noise = generator.standard_normal((len(of), z.shape[1]), dtype=np.float32)
        noise *= self.settings.noise
        return self.fgen(z[torch.from_numpy(of)], torch.from_numpy(noise).to(z.device)), of


class NeighGen(nn.Module):
    """NeighGen_i: H^e and H^g."""

    def __init__(
        self, num_features: int, neighgen: NeighGenConfig, generator: np.random.Generator
    ) -> None:
        super().__init__()
        self.encoder = Encoder(num_features, neighgen, generator)
        self.hg = Hg(num_features, neighgen, generator)


def whole_counts(
    predicted: Float[Tensor, " batch"],
    settings: NeighGenConfig,
    generator: np.random.Generator,
) -> Int[Array, " batch"]:
    """ñ_v as whole numbers, within bounds.

    Note:
        No gradient flows through them. ``round`` is the paper's; ``draw`` rounds 0.3 up in
        three cases out of ten, so that small expectations are not rounded away.
    """
    values = np.nan_to_num(predicted.cpu().numpy().astype(np.float64))  # NaN shows in the loss
    drawn = settings.counts == "draw"
    whole = np.floor(values + (generator.random(len(values)) if drawn else 0.5))
    return whole.clip(settings.at_least, settings.at_most).astype(np.int64)


def sample_rows(num_generated: Int[Array, " batch"]) -> Int[Array, " rows"]:
    r"""R of Eq. (3): for each neighbor to be generated, the v that it is for.

    Note:
        The paper samples :math:`\widetilde n_v` of fGen's outputs. Ours differ only in
        their noise, so drawing that many at random is the same as making that many.
    """
    return np.repeat(np.arange(len(num_generated)), num_generated)


@dataclass(frozen=True, eq=False)
class Held:
    """What everybody holds of one owner's H^g since round ``t``."""

    t: int
    hg: Parameters
    next: WeakValueDictionary[str, Held] = field(default_factory=WeakValueDictionary)

    def after(self, t: int, name: str, change: Callable[[], Parameters]) -> Held:
        """The state after the change of that name, in round ``t``.

        Owners in one process compute it once and share the result.
        """
        key = f"{t} {name}"
        found = self.next.get(key) or Held(t, self.moved_by(change()))
        self.next[key] = found
        return found

    def moved_by(self, change: Parameters) -> Parameters:
        """The weights after a change."""
        return {name: weight + change[name] for name, weight in self.hg.items()}


@lru_cache(maxsize=1)
def first_held(num_features: int, settings: NeighGenConfig, seed: int) -> Held:
    """Before the first round, all generators are equal and known to all."""
    first = NeighGen(num_features, settings, generator(seed, "theta"))
    return Held(FIRST, parameters_of(first.hg))
