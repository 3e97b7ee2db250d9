"""What links may have besides their ends: a weight, and the day since which they exist.

A weight says how much a neighbor counts in a mean over neighbors. Only its size relative to
the other links of a node matters, so weights that are all the same are no weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedsage.errors import DataError
from fedsage.graph.arrays import firsts, frozen, paired
from fedsage.readable import counted
from fedsage.shapes import Array, EdgeIndex


@dataclass(frozen=True, slots=True, eq=False)
class LinkValues:
    """Weights and times of some links, each there or not."""

    weights: Float[Array, " E"] | None = None
    times: Float[Array, " E"] | None = None  # in days since 2000; NaN where not known

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.weights is not None or self.times is not None

    def taken(self, which: Any) -> LinkValues:
        """Those of some links."""
        return LinkValues(*(None if one is None else one[which] for one in self.both))

    @property
    def both(self) -> tuple[Array | None, Array | None]:
        """Weights and times."""
        return self.weights, self.times

    def same(self, other: LinkValues) -> bool:
        """Whether the other ones are equal."""
        pairs = zip(self.both, other.both, strict=True)
        return all(
            np.array_equal(one, two, equal_nan=True)
            if one is not None and two is not None
            else one is two
            for one, two in pairs
        )

    def followed_by(self, weights: Array, times: Array) -> LinkValues:
        """These, then those of more links, as far as these have any."""
        return LinkValues(
            *(
                None if mine is None else np.concatenate([mine, more])
                for mine, more in zip(self.both, (weights, times), strict=True)
            )
        )

    def within(
        self, links: EdgeIndex, indptr: Int[Array, " pointers"], indices: Int[Array, " twice_E"]
    ) -> LinkValues:
        """Those of a subgraph; ``links`` has -1 for ends that are outside."""
        inside = (links >= 0).all(axis=0)
        return self.taken(inside).spread(links[:, inside], indptr, indices)

    def spread(
        self, links: EdgeIndex, indptr: Int[Array, " pointers"], indices: Int[Array, " twice_E"]
    ) -> LinkValues:
        """The values of every entry of a CSR, from those of ``links`` in any order.

        A link that is listed twice has its largest weight and its earliest time.
        """
        if not self:
            return self
        keys = np.concatenate([paired(*links), paired(*links[::-1])])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(firsts(keys))
        entries = paired(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices)
        at = np.searchsorted(keys[starts], entries)

        def each(values: Array | None, pick: np.ufunc) -> Array | None:
            if values is None:
                return None
            found = pick.reduceat(np.tile(values, 2)[order], starts) if len(starts) else values
            return frozen(found[at])

        return LinkValues(each(self.weights, np.maximum), each(self.times, np.fmin))


NO_VALUES = LinkValues()


def checked_values(
    weights: Array | None, times: Array | None, num_links: int, name: str
) -> LinkValues:
    """Weights as float32, none if all are the same, and times; refuses what is neither."""
    found: list[Array | None] = []
    for what, values, kind in (("weight", weights, np.float32), ("time", times, np.float64)):
        if values is None:
            found.append(None)
            continue
        held = np.asarray(values, dtype=kind)
        if held.shape != (num_links,):
            raise DataError(
                f"{name}: there are {counted(num_links, 'link')}, but {what}s of shape "
                f"{held.shape}. Give one {what} per link."
            )
        bad = ~(np.isfinite(held) & (held > 0)) if what == "weight" else np.isinf(held)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            wanted = "positive numbers" if what == "weight" else "days since 2000, or NaN"
            raise DataError(
                f"{name}: the {what} of link {first} is {held[first]}. Give {wanted}."
            )
        found.append(held)
    same = found[0] is None or not num_links or bool((found[0] == found[0][0]).all())
    return LinkValues(None if same else found[0], found[1])
