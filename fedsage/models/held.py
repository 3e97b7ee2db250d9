"""H^g of an owner as all others hold it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakValueDictionary

from fedsage.config import NeighGenConfig
from fedsage.models.neighgen import NeighGen
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.rng import generator

FIRST = -1  # the round before the first


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
