"""What a receiver got: means over groups of remote nodes, looked up by a node's id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.sparse import csr_array, issparse, vstack

from fedsage.mending.links.groups import ALONE
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import Whole
from fedsage.shapes import Array, NodeFeatures, NodeIds

Ids: TypeAlias = Int64[Array, " nodes"]  # fingerprints of remote ids


@dataclass(frozen=True, slots=True, eq=False)
class HeldMeans:
    """Fingerprints of remote ids, ascending, the group of each, and the mean of each group."""

    ids: Ids
    group: NodeIds
    means: Float[Array, "groups d_x"]

    @classmethod
    def nothing(cls, width: int) -> HeldMeans:
        """Before anything came."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, np.empty((0, width), np.float32))

    @classmethod
    def of_groups(cls, ids: Ids, group: NodeIds, means: Array) -> HeldMeans:
        """The means of the groups that some nodes are in, if in any."""
        some = group != ALONE
        order = np.argsort(ids[some])
        return cls(ids[some][order], group[some][order], means)

    def joined(self, other: HeldMeans) -> HeldMeans:
        """Both; no node is in both."""
        ids = np.concatenate([self.ids, other.ids])
        group = np.concatenate([self.group, other.group + len(self.means)])
        order = np.argsort(ids)
        means = np.concatenate([self.means, other.means])
        return HeldMeans(ids[order], group[order], means)

    def only(self, places: NodeIds) -> HeldMeans:
        """Some of the nodes, in order, with their groups."""
        names, group = np.unique(self.group[places], return_inverse=True)
        return HeldMeans(self.ids[places], group.reshape(-1), self.means[names])

    def of(self, names: Sequence[str]) -> NodeIds:
        """The group of each of these remote nodes, or ``ALONE``."""
        return self.at(fingerprints(names))

    def at(self, wanted: Ids) -> NodeIds:
        """The same for nodes by fingerprint."""
        place = self.places(wanted)
        return np.where(place == ALONE, ALONE, np.append(self.group, ALONE)[place])

    def places(self, wanted: Ids) -> NodeIds:
        """Where each of these nodes is in ``ids``, or ``ALONE``."""
        if not len(self.ids):
            return np.full(len(wanted), ALONE)
        at = np.searchsorted(self.ids, wanted).clip(max=len(self.ids) - 1)
        return np.where(self.ids[at] == wanted, at, ALONE)

    def tensors(self) -> Parameters:
        """In the form that is kept."""
        return {
            "ids": torch.from_numpy(np.array(self.ids)),
            "group": torch.from_numpy(self.group.astype(np.int32)),
            "means": torch.from_numpy(self.means),
        }

    @classmethod
    def from_tensors(cls, kept: Parameters) -> HeldMeans:
        """The inverse of ``tensors``."""
        ids, group = kept["ids"].numpy().copy(), kept["group"].numpy().astype(np.int64)
        return cls(ids, group, kept["means"].numpy().copy())


def fingerprints(names: Iterable[str]) -> Ids:
    """A number for each id."""
    found = b"".join(sha256(name.encode()).digest()[:8] for name in names)
    return np.frombuffer(found, "<i8").astype(np.int64)


def stacked(rows: NodeFeatures, some: NodeIds, others: NodeFeatures) -> NodeFeatures:
    """Some of the rows above those of other nodes; sparse where those are."""
    if issparse(others):
        return vstack([csr_array(rows)[some], others]).tocsr()
    return np.concatenate([rows[some], others])


def tensor(values: Array) -> Whole:
    """As a message holds it."""
    return torch.from_numpy(np.array(values, order="C"))


def numbers(values: Array) -> Whole:
    """Small whole numbers as a message holds them."""
    return tensor(values.astype(np.int32))
