"""NeighGen (Sec. 4.1): the encoder H^e and the generator H^g = {dGen, fGen}, Eq. (3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fedsage.models.graphsage import GraphSage, SageShape, glorot
from fedsage.shapes import Array

ONE_NEIGHBOR = math.log(math.e - 1)  # where softplus is one
Output: TypeAlias = Literal["relu", "sigmoid", "tanh", "linear"]
Embeddings: TypeAlias = Float[Tensor, "batch d_z"]  # Z_i^t
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "linear": torch.clone,
}


@dataclass(frozen=True, slots=True)
class GenShape:
    """All that it takes to build a NeighGen whose weights fit.

    ``widths`` are the encoder's layers, the last of them d_z; ``hidden`` the layers of fGen
    between z and a feature vector; ``output`` is σ on fGen's last layer.
    """

    num_features: int
    widths: tuple[int, ...]
    hidden: tuple[int, ...]
    output: Output = "relu"


@dataclass(frozen=True, slots=True)
class Counts:
    """How ñ_v becomes a whole number: to the nearest, or up or down by chance."""

    how: Literal["round", "draw"] = "round"
    at_least: int = 0
    at_most: int = 5


class Encoder(GraphSage):
    """H^e: a K-layer GraphSage on the impaired graph; z_v = h_v^K. It never leaves home."""

    def __init__(self, shape: GenShape, generator: np.random.Generator) -> None:
        d_z = shape.widths[-1]
        super().__init__(SageShape(shape.num_features, d_z, shape.widths, "direct"), generator)


class DGen(nn.Module):
    """dGen: how many neighbors a node misses; a linear regression on z_v."""

    def __init__(self, d_z: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.theta_d = nn.Parameter(glorot(d_z, 1, generator)[:, 0])
        self.bias = nn.Parameter(torch.tensor(ONE_NEIGHBOR))

    def forward(self, z: Embeddings) -> Float[Tensor, " batch"]:
        r"""Eq. (3) left, :math:`\widetilde n_v = \sigma((\theta^d)^T \cdot z_v)`.

        Note:
            The paper prints n_v, dGen's own target, in place of z_v. σ is softplus, a ReLU
            whose gradient never dies: most nodes miss no neighbor, and a ReLU that has once
            said so for all of them says so for ever. We add a bias, which starts at one
            neighbor.
        """
        return F.softplus(z @ self.theta_d + self.bias)


class FGen(nn.Module):
    """fGen: features of one missing neighbor from z_v and noise."""

    def __init__(self, shape: GenShape, generator: np.random.Generator) -> None:
        super().__init__()
        sizes = (shape.widths[-1], *shape.hidden, shape.num_features)
        self.theta_f = nn.ParameterList(
            nn.Parameter(glorot(a, b, generator)) for a, b in pairwise(sizes)
        )
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes[1:])
        self.output = shape.output

    def forward(
        self, z: Float[Tensor, "rows d_z"], noise: Float[Tensor, "rows d_z"]
    ) -> Float[Tensor, "rows d_x"]:
        r"""Eq. (3) right, :math:`\sigma((\theta^f)^T \cdot (z_v + \mathbf{N}(0, 1)))`.

        Note:
            The paper draws one noise vector a node and has fGen put out many neighbors at
            once. Ours puts out one, and is called with fresh noise for each neighbor: the
            same weights serve them all, so that far fewer are exchanged.

            In memory a feature's values for all neighbors lie side by side: the search for
            the nearest node reads them so.
        """
        h = z + noise
        for theta_f, bias in zip(self.theta_f[:-1], self.bias[:-1], strict=True):
            h = torch.relu(torch.addmm(bias, h, theta_f))
        columns = torch.addmm(self.bias[-1][:, None], self.theta_f[-1].T, h.T)
        return ACTIVATIONS[self.output](columns).T


class Hg(nn.Module):
    """H^g = {dGen, fGen}: what an owner lets others run."""

    def __init__(self, shape: GenShape, generator: np.random.Generator) -> None:
        super().__init__()
        self.dgen = DGen(shape.widths[-1], generator)
        self.fgen = FGen(shape, generator)

    def forward(
        self,
        z: Embeddings,
        counts: Counts,
        noise_scale: float,
        generator: np.random.Generator,
    ) -> tuple[Float[Tensor, "rows d_x"], Int[Array, " rows"]]:
        """Generated neighbors of the nodes whose embeddings are ``z``.

        Whoever has ``z``, the weights and the same stream gets the same neighbors.

        Returns:
            All x̃_v^p, one after the other, and for each of them the row of its v in ``z``.
        """
        num_generated = whole_counts(self.dgen(z).detach(), counts, generator)
        of = sample_rows(num_generated)
        noise = generator.standard_normal((len(of), z.shape[1]), dtype=np.float32) * noise_scale
        return self.fgen(z[torch.from_numpy(of)], torch.from_numpy(noise).to(z.device)), of


class NeighGen(nn.Module):
    """NeighGen_i: H^e and H^g."""

    def __init__(self, shape: GenShape, generator: np.random.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape, generator)
        self.hg = Hg(shape, generator)


def whole_counts(
    predicted: Float[Tensor, " batch"], counts: Counts, generator: np.random.Generator
) -> Int[Array, " batch"]:
    """ñ_v as whole numbers, within bounds.

    Note:
        No gradient flows through them. ``round`` is the paper's; ``draw`` rounds 0.3 up in
        three cases of ten, so that small expectations are not rounded away.
    """
    values = np.nan_to_num(predicted.cpu().numpy().astype(np.float64))  # NaN shows in the loss
    whole = np.floor(values + (generator.random(len(values)) if counts.how == "draw" else 0.5))
    return whole.clip(counts.at_least, counts.at_most).astype(np.int64)


def sample_rows(num_generated: Int[Array, " batch"]) -> Int[Array, " rows"]:
    r"""R of Eq. (3): for each neighbor to be generated, the v that it is for.

    Note:
        The paper samples :math:`\widetilde n_v` of fGen's outputs. Ours differ by their
        noise alone, so drawing that many at random is the same as making that many.
    """
    return np.repeat(np.arange(len(num_generated)), num_generated)
