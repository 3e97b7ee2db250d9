"""Models of several layers with a head on top: what all of ours have in common.

Which hidden values dropout keeps depends only on a key, and is the same in every kernel. Values
are numbered in row-major order. Eight of them share one word of the SplitMix64 sequence that
starts at the key, one byte each; a value is kept if its byte is at least the threshold. So
dropout shares come in steps of 1/256.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, UInt64
from torch import Tensor, nn

from fedsage.config import Norm
from fedsage.models.backbone import Backbone, Shape
from fedsage.models.edges import Edges
from fedsage.models.parameters import Hidden, Inputs, Logits
from fedsage.shapes import Array

KEYS = 2.0**53  # as many as a random float can distinguish
KEY_STRIDE = 1 << 8  # between draws, so that layers can add their number


class Layers(Backbone):
    """Layers, an activation after each, and a head. Initial weights come from ``generator``.

    ``model.widths`` are those of the layers. ``model.head`` says how h^K becomes logits:
    ``direct``, h^K are the logits; ``l2``, a linear layer on h^K / ‖h^K‖; ``relu``, a linear
    layer on ReLU(h^K). ``model.norm`` is applied to the output of every layer below.
    """

    @property
    def reach(self) -> int | None:
        """A hop for each layer, and one more for the degrees of the farthest neighbors."""
        return len(self.shape.model.widths) + 1

    def __init__(self, shape: Shape, generator: np.random.Generator) -> None:
        super().__init__(shape, generator)
        model, classes = shape.model, shape.num_classes
        direct = model.head == "direct"
        widths = (*model.widths[:-1], classes) if direct else model.widths
        sizes = enumerate(pairwise((shape.num_features, *widths)))
        self.layers = nn.ModuleList(self.new_layer(k, *pair, generator) for k, pair in sizes)
        self.head = nn.Identity() if direct else nn.Linear(widths[-1], classes)
        if isinstance(self.head, nn.Linear):
            weight = glorot(widths[-1], classes, generator)
            self.head.weight = nn.Parameter(weight.T.contiguous())
            nn.init.zeros_(self.head.bias)

    def new_layer(
        self, k: int, d_in: int, d_out: int, generator: np.random.Generator
    ) -> nn.Module:
        """Layer k, to be called with the features of all rows and the links among them."""
        raise NotImplementedError

    def on_edges(
        self, h: Inputs, edges: Edges, generator: np.random.Generator | None = None
    ) -> Logits:
        """Apply one layer after the other, each to all rows."""
        key = self.dropout_key(generator)
        for k, layer in enumerate(self.layers):
            h = self.activate(layer(h, edges), k, key)
        logits: Tensor = self.head(h)
        return logits

    def activate(self, h: Hidden, k: int, key: int | None = None) -> Hidden:
        r"""Layer k's :math:`\sigma`, norm and dropout; the last layer's depend on the head."""
        model = self.shape.model
        if k + 1 < len(self.layers):
            h = normalize(torch.relu(h), model.norm)
        elif model.head != "relu":
            return F.normalize(h, dim=1) if model.head == "l2" else h
        else:
            h = torch.relu(h)
        return h if key is None else drop(h, model.dropout, key + k)

    def dropout_key(self, generator: np.random.Generator | None) -> int | None:
        """The key that decides dropout for one batch; None if nothing is dropped."""
        drops = generator is not None and threshold(self.shape.model.dropout) > 0
        return dropout_key(generator) if drops else None  # type: ignore[arg-type]


def glorot(d_in: int, d_out: int, generator: np.random.Generator) -> Tensor:
    """Glorot's uniform initial weights, drawn from ``generator``."""
    bound = (6 / (d_in + d_out)) ** 0.5
    return torch.from_numpy(generator.uniform(-bound, bound, (d_in, d_out)).astype(np.float32))


def normalize(h: Hidden, norm: Norm) -> Hidden:
    """Each row to unit length, to zero mean and unit variance, or as it is."""
    if norm == "none":
        return h
    return F.normalize(h, dim=1) if norm == "l2" else F.layer_norm(h, h.shape[1:])


def drop(h: Hidden, share: float, key: int) -> Hidden:
    """Dropout: the values that :func:`kept` does not keep become zero."""
    mask = kept(h.numel(), share, key).reshape(tuple(h.shape))
    return h * torch.from_numpy(mask).to(h.device) * kept_scale(share)


def dropout_key(generator: np.random.Generator) -> int:
    """The key for one batch; layer k uses ``key + k``."""
    return int(generator.random() * KEYS) * KEY_STRIDE


def threshold(share: float) -> int:
    """The smallest byte for which a value is kept."""
    return round(share * 256)


def kept_scale(share: float) -> float:
    """The factor for kept values that preserves the mean."""
    return 256 / (256 - threshold(share))


def kept(count: int, share: float, key: int) -> Bool[Array, " count"]:
    """For each of ``count`` values, whether it is kept."""
    words = split_mix(np.uint64(key % 2**64), -(-count // 8))
    return words.astype("<u8").view(np.uint8)[:count] >= threshold(share)


def split_mix(key: np.uint64, count: int) -> UInt64[Array, " words"]:
    """``count`` words of the SplitMix64 sequence (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = key * np.uint64(0xD1342543DE82EF95) + np.arange(1, count + 1, dtype=np.uint64) * (
            np.uint64(0x9E3779B97F4A7C15)
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
