"""The first pass of Louvain, compiled: nodes move to the neighbor community that gains most."""

from __future__ import annotations

import numpy as np

from fedsage.compiled import kept_on_disk

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@kept_on_disk
def moved(indptr, indices, order, least):
    """The community of every node once fewer than ``least`` nodes move in a pass.

    Nodes are visited in ``order``. Moving v, of degree d, into community c adds
    (links from v to c) / m − d · (degrees in c) / 2m² to modularity; times 2m² both terms are
    whole numbers, so that comparing them is exact, and every move is a gain.
    """
    twice_m = len(indices)
    community = np.arange(len(order)).astype(np.int32)
    volume = np.diff(indptr)  # degrees in each community
    links = np.zeros(len(order), np.int32)  # of the node in turn, with each community
    near = np.empty(len(order), np.int32)
    moves = len(order)
    while moves >= least:
        moves = 0
        for v in order:
            start, end = indptr[v], indptr[v + 1]
            degree, own, count = end - start, community[v], 0
            for u in indices[start:end]:
                c = community[u]
                if links[c] == 0:
                    near[count] = c
                    count += 1
                links[c] += 1
            volume[own] -= degree
            best, most = own, links[own] * twice_m - degree * volume[own]
            for c in near[:count]:
                gain = links[c] * twice_m - degree * volume[c]
                if gain > most:
                    best, most = c, gain
                links[c] = 0
            volume[best] += degree
            moves += best != own
            community[v] = best
    return community
