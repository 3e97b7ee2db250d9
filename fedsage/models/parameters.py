"""Weights by name, and the tensor types that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from fedsage.errors import ProtocolError
from fedsage.shapes import SparseMatrix

Parameters: TypeAlias = dict[str, Tensor]  # phi, theta_d, ...: one entry for each weight
Hidden: TypeAlias = Float[Tensor, "_ _"]  # h^k of some nodes
if TYPE_CHECKING:
    Inputs: TypeAlias = Any  # SciPy has no types of its own
else:
    Inputs = SparseMatrix | Float[Tensor, "_ _"] | tuple  # h^{k-1}; h^0 may be sparse
Logits: TypeAlias = Float[Tensor, "_ d_y"]  # h^K


class Stacked(NamedTuple):
    """Features of real nodes, sparse or dense, and of generated ones below them."""

    real: Inputs
    generated: Float[Tensor, "_ _"]


def parameters_of(model: nn.Module) -> Parameters:
    """A copy of every weight, on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}


def load_parameters(model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Copy weights into ``model``: exactly those it has, in the shapes it has."""
    weights = dict(model.named_parameters())
    for name in weights | dict(parameters):
        held, given = weights.get(name), parameters.get(name)
        if held is None or given is None or held.shape != given.shape:
            raise ProtocolError(
                f"The weights of {name} do not fit: they have shape {shape_of(given)}, the "
                f"model's {shape_of(held)}. Do all parties use the same settings?"
            )
    for name, weight in weights.items():
        weight.detach().copy_(parameters[name])


def shape_of(weight: Tensor | None) -> str:
    """A weight's shape in words, for an error."""
    return "none" if weight is None else str(tuple(weight.shape))


def under(prefix: str, parameters: Mapping[str, Tensor]) -> Parameters:
    """The tensors whose names start with ``prefix/``, by the rest of their names."""
    start = f"{prefix}/"
    found = parameters.items()
    return {name.removeprefix(start): t for name, t in found if name.startswith(start)}


def sha256_of(parameters: Mapping[str, Tensor]) -> str:
    """The checksum of all tensors in order of name: equal if and only if every bit is."""
    digest = hashlib.sha256()
    for name in sorted(parameters):
        tensor = parameters[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
