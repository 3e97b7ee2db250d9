"""Who attacks: a hostile owner. By what: its reply to procedure F, many times as large.

It sees what every owner sees: φ and its own training. Chance level: the accuracy of a run in
which that owner is honest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class Poison:
    """A link of an owner's door: the owner's update, times ``factor``.

    Args:
        factor: For example −30: far back, away from where training goes.
        weights: The weights of the owner's classifier at this moment.
        owners: M; whole numbers are kept below an owner's share, or they would be found out.
        gradients: Whether the optimizer's first moments are multiplied too.
    """

    factor: float
    weights: Callable[[], Mapping[str, Tensor]]
    owners: int
    gradients: bool = True
    start: dict[str, Tensor] = field(default_factory=dict)  # φ, as it was received

    def __call__(self, procedure: Any, message: Any) -> Any:
        """The reply as it leaves."""
        if procedure.name == "receive_classifier":
            self.start = {name: weight.clone() for name, weight in self.weights().items()}
        if procedure.name == "local_update_c":
            return replace(message, phi=self.far(message.phi), moments=self.more(message))
        if procedure.name == "local_change_c":
            parts = {name: self.times(name, part) for name, part in message.parts.items()}
            return replace(message, parts=parts)
        return message

    def far(self, phi: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """φ + factor · (φ_i − φ)."""
        start = self.start
        return {name: start[name] + self.factor * (w - start[name]) for name, w in phi.items()}

    def more(self, update: Any) -> dict[str, Tensor]:
        """First moments as if gradients had been as much larger."""
        return {
            name: moment * self.factor
            if self.gradients and name.endswith(".exp_avg")
            else moment
            for name, moment in update.moments.items()
        }

    def times(self, name: str, numbers: Tensor) -> Tensor:
        """Whole numbers times ``factor``, as far as an owner's share of the ring goes."""
        if name in ("squares", "roots"):
            return numbers
        most = torch.iinfo(numbers.dtype).max // self.owners
        return (numbers.double() * self.factor).round().clamp(-most, most).to(numbers.dtype)
