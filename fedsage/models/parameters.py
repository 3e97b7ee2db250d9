"""Weights by name, and the tensor types that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from fedsage.shapes import SparseMatrix

Parameters: TypeAlias = dict[str, Tensor]  # phi, theta_d, ...: one entry a weight
Hidden: TypeAlias = Float[Tensor, "_ _"]  # h^k of some nodes
if TYPE_CHECKING:
    Inputs: TypeAlias = Any  # SciPy has no types of its own
else:
    Inputs = SparseMatrix | Float[Tensor, "_ _"]  # h^{k-1}; h^0 may be sparse
Logits: TypeAlias = Float[Tensor, "_ d_y"]  # h^K


def parameters_of(model: nn.Module) -> Parameters:
    """A copy of every weight, on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}


def under(prefix: str, parameters: Mapping[str, Tensor]) -> Parameters:
    """The tensors whose names start with ``prefix/``, by the rest of their names."""
    start = f"{prefix}/"
    found = parameters.items()
    return {name.removeprefix(start): t for name, t in found if name.startswith(start)}


def sha256_of(parameters: Mapping[str, Tensor]) -> str:
    """The checksum of all tensors in name order: equal if and only if every bit is."""
    digest = hashlib.sha256()
    for name in sorted(parameters):
        tensor = parameters[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
