"""The remote nodes that an owner has links to, those links, and how nodes are looked for."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float

from fedsage.graph.known_links import UNKNOWN, KnownLinks
from fedsage.mending.links.received import Ids, fingerprints
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Whole
from fedsage.protocol.messages import OwnerId, message
from fedsage.shapes import Array, NodeIds

NOWHERE = -1
SIDE_HERE, SIDE_IDS = "side_here", "side_ids"


@message
class SoughtNodes:
    """D_i → D_j, sealed: the ids that D_i has links to, blinded; or tags of the links."""

    points: Whole  # n × 32
    shared: Whole  # 2V × 32: all nodes of D_i, blinded, if owners hold nodes in common
    words: int  # the first column of which D_i gives only presence
    usual: int  # how many words its rows have, the median


@message
class FoundNodes:
    """D_j → D_i, sealed: those points blinded by D_j too, and its own, blinded and shuffled.

    By tags: of each link the place of D_j's end in its shuffled list, or -1.
    """

    again: Whole  # n × 32
    nodes: Whole  # V_j × 32
    places: Whole  # n
    exponent: int  # no feature of D_j is above 2^e
    shared: Whole  # the nodes of D_i, blinded by D_j, too


class FarEnds:
    """Remote nodes by number; links that its table names come first.

    ``ids`` are fingerprints of the remote nodes; ``whose`` node each is, and at which ``place``
    of that owner's list, is found out during the exchange. Link k leads from the own node
    ``here[k]`` to the remote node ``there[k]``.
    """

    def __init__(self, links: KnownLinks) -> None:
        self.names, self.there = np.unique(np.asarray(links.there), return_inverse=True)
        self.here, self.known = links.here, len(links.here)
        self.ids: Ids = fingerprints(self.names.tolist())
        self.weights, self.at = links.weights, links.at
        self.whose = np.full(len(self.names), NOWHERE)
        self.place = np.full(len(self.names), NOWHERE)

    def found(self, owner: int, numbers: NodeIds, places: NodeIds) -> None:
        """Some nodes are that owner's, unless they were found at another one before."""
        new = (places != NOWHERE) & (self.whose[numbers] == NOWHERE)
        self.whose[numbers[new]], self.place[numbers[new]] = owner, places[new]

    def lose(self, owner: OwnerId, places: NodeIds) -> None:
        """Some nodes of an owner cannot be had."""
        self.whose[(self.whose == owner) & np.isin(self.place, places)] = NOWHERE

    def reached(self, owners: Collection[OwnerId]) -> tuple[int, int]:
        """How many links of the table may lead to those owners, and how many were found to."""
        sought = np.isin(self.at, [UNKNOWN, *owners])
        found = sought & (self.whose[self.there[: self.known]] != NOWHERE)
        return int(sought.sum()), int(found.sum())

    def add(self, here: NodeIds, ids: Ids) -> NodeIds:
        """Links to more nodes, or to some that are there already; gives their numbers.

        New nodes are numbered as they come: their ids are by chance, and must decide nothing.
        """
        first = np.sort(np.unique(ids, return_index=True)[1])
        more = ids[first][~np.isin(ids[first], self.ids)]
        self.ids = np.concatenate([self.ids, more])
        self.whose, self.place = (
            np.append(one, np.full(len(more), NOWHERE)) for one in (self.whose, self.place)
        )
        order = np.argsort(self.ids, kind="stable")
        numbers: NodeIds = order[np.searchsorted(self.ids, ids, sorter=order)]
        self.here, self.there = np.append(self.here, here), np.append(self.there, numbers)
        if self.weights is not None:
            usual = self.weights.mean() if len(self.weights) else 1.0
            self.weights = np.append(self.weights, np.full(len(here), usual))
        return numbers

    def ids_at(self, owner: int, places: NodeIds, otherwise: Ids) -> Ids:
        """The ids of nodes at some places of an owner's list, where they are known."""
        mine = np.flatnonzero(self.whose == owner)
        if not len(mine):
            return otherwise
        mine = mine[np.argsort(self.place[mine])]
        at = np.searchsorted(self.place[mine], places).clip(max=len(mine) - 1)
        known = self.place[mine][at] == places
        return np.where(known, self.ids[mine[at]], otherwise)

    def to_ask_for(self, old: Ids) -> tuple[NodeIds, NodeIds]:
        """Both ends of the links whose far ends were found, without those of earlier runs."""
        real = ((self.whose != NOWHERE) & ~np.isin(self.ids, old))[self.there]
        return self.here[real], self.there[real]

    def tensors(self) -> Parameters:
        """The links that are in no table, in the form that is kept."""
        here, ids = self.here[self.known :], self.ids[self.there[self.known :]]
        found: dict[str, Array] = {SIDE_HERE: here, SIDE_IDS: ids}
        return {name: torch.from_numpy(one.copy()) for name, one in found.items()}

    def restore(self, kept: Parameters) -> None:
        """Have them again."""
        self.add(kept[SIDE_HERE].numpy(), kept[SIDE_IDS].numpy())


def once(
    here: NodeIds, there: NodeIds, weights: Float[Array, " links"] | None, some: NodeIds
) -> NodeIds:
    """Some links, each pair of nodes once: a link listed twice has its largest weight."""
    if weights is not None:
        some = some[np.argsort(-weights[some], kind="stable")]
    pairs = np.stack([here, there])[:, some]
    kept: NodeIds = some[np.unique(pairs, axis=1, return_index=True)[1]]
    return kept
