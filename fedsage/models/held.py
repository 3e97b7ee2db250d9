"""H^g of an owner as all others hold it, to the bit, and how a change moves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakValueDictionary

from fedsage.config import NeighGenConfig
from fedsage.models.frames import shapes_of, taken_out
from fedsage.models.neighgen import NeighGen
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.rng import generator

FIRST = -1  # the round before the first


@dataclass(frozen=True, eq=False)
class Held:
    """What everybody holds of one owner's H^g since round ``t``.

    Owners in one process make a change once, and hold one and the same.
    """

    t: int
    hg: Parameters
    next: WeakValueDictionary[str, Held] = field(default_factory=WeakValueDictionary)

    def after(self, t: int, change: Parameters) -> Held:
        """After a change in round ``t``, in whole numbers with their frame."""
        what = f"{t} {sha256_of(change)}"
        found = self.next.get(what) or Held(t, self.moved_by(change))
        self.next[what] = found
        return found

    def moved_by(self, change: Parameters) -> Parameters:
        """The weights after it."""
        more = taken_out(change, change, shapes_of(self.hg))
        return {name: weight + more[name] for name, weight in self.hg.items()}


@lru_cache(maxsize=1)
def first_held(num_features: int, settings: NeighGenConfig, seed: int) -> Held:
    """Before the first round all generators are alike, and known to all."""
    first = NeighGen(num_features, settings, generator(seed, "theta"))
    return Held(FIRST, parameters_of(first.hg))
