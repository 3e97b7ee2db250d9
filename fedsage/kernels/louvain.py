"""The first pass of Louvain, compiled: nodes move to the neighbor community with most gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsage.kernels.compiling import kept_on_disk
from fedsage.kernels.lowlevel import LINE, prefetch

AHEAD = 2  # nodes

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> Any:
    """The moves, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def move(indptr, indices, order, least, community, tally, near):
        """Change ``community`` until fewer than ``least`` nodes move in a pass.

        ``tally`` has, for each community, the current node's links to it and the degrees in
        it, side by side because they are read together. Nodes come in an order that no cache
        can predict, so their data is prefetched a few nodes earlier.
        """
        twice_m, last, one = len(indices), len(order) - 1, np.uint64(1)
        moves = len(order) if stamp > 0 else 0
        while moves >= least:
            moves = 0
            for i in range(len(order)):
                prefetch(indptr, order[min(i + 4 * AHEAD, last)])
                soon = indptr[order[min(i + 3 * AHEAD, last)]]
                prefetch(indices, soon)
                prefetch(indices, soon + LINE)
                w = np.uint64(order[min(i + 2 * AHEAD, last)])
                for e in range(np.uint64(indptr[w]), np.uint64(indptr[w + one])):
                    prefetch(community, indices[e])
                w = np.uint64(order[min(i + AHEAD, last)])
                prefetch(community, w)
                for e in range(np.uint64(indptr[w]), np.uint64(indptr[w + one])):
                    prefetch(tally, 2 * community[np.uint64(indices[e])])
                v = np.uint64(order[i])
                start, end = np.uint64(indptr[v]), np.uint64(indptr[v + one])
                degree, own = np.int64(end - start), np.uint64(community[v])
                count = np.uint64(0)
                for e in range(start, end):
                    c = np.uint64(community[np.uint64(indices[e])])
                    near[count] = c
                    count += np.uint64(tally[c, 0] == 0)
                    tally[c, 0] += 1
                tally[own, 1] -= degree
                best, most = own, tally[own, 0] * twice_m - degree * tally[own, 1]
                for k in range(count):
                    c = np.uint64(near[k])
                    gain = tally[c, 0] * twice_m - degree * tally[c, 1]
                    if gain > most:
                        best, most = c, gain
                    tally[c, 0] = 0
                tally[best, 1] += degree
                moves += best != own
                community[v] = best

    return move


move = kept_on_disk(with_stamp)
