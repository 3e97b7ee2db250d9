"""What a contributor adds to another owner's sums: checked, in whole numbers, masked.

The receiver tells each contributor in which rows it takes part, with which of its nodes, and
with how many nodes which owners take part beside it. Contributors of a row mask their parts
pairwise, by keys that also depend on what they were told: where the receiver tells two stories,
masks do not cancel, and it gets noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.errors import PrivacyError
from fedsage.mending.link_rows import Sums
from fedsage.models.parameters import Parameters
from fedsage.privacy.masks import stream
from fedsage.privacy.sums import Whole
from fedsage.protocol.messages import OwnerId, message
from fedsage.shapes import Array, NodeFeatures, NodeIds

BITS = 15  # of a part, beside the sign
SHORTEST = 0.25  # of the mean length: shorter rows are not found
Parts = Int[Array, "rows d_x"]  # modulo 2^16


@message
class RowsAsked:
    """D_i → D_j, sealed: the sums of D_i that D_j adds to.

    Members and groups are lists, sorted by row. A row is called by the node of D_i it is for.
    """

    members: Whole  # n × 3: row, node of D_j, whether it is private to the row
    groups: Whole  # m × 4: row, owner, how many of its nodes, how many of them private
    exponent: int  # no feature is above 2^e


@message
class RowParts:
    """D_j → D_i, sealed: what D_j adds to the means of those rows, masked."""

    parts: Whole  # rows × d_x


@dataclass(frozen=True, slots=True, eq=False)
class HeldSums:
    """What a receiver got: for some of its nodes the mean of their remote neighbors."""

    here: NodeIds
    means: Float[Array, "rows d_x"]

    @classmethod
    def nothing(cls, width: int) -> HeldSums:
        """Before anything came."""
        return cls(np.empty(0, np.int64), np.empty((0, width), np.float32))

    def tensors(self) -> Parameters:
        """In the form that is kept."""
        return {
            "here": torch.from_numpy(self.here.astype(np.int32)),
            "means": torch.from_numpy(self.means),
        }

    @classmethod
    def of(cls, kept: Parameters) -> HeldSums:
        """The inverse of ``tensors``."""
        return cls(kept["here"].numpy().astype(np.int64), kept["means"].numpy().copy())


def answered(
    x: NodeFeatures,
    asked: RowsAsked,
    me: OwnerId,
    receiver: OwnerId,
    at_least: int,
    key_with: Callable[[OwnerId, str], bytes],
) -> RowParts:
    """This owner's masked parts; refuses sums that would show single rows."""
    members, groups = asked.members.numpy(), asked.groups.numpy()
    why = wrong_members(members, x.shape[0]) or wrong_groups(
        members, groups, me, receiver, at_least
    )
    if why:
        raise PrivacyError(f"Owner {receiver} asked for sums with {why}. It was sent nothing.")
    found = masked_parts(parts_of(x, asked), asked, me, key_with)
    return RowParts(torch.from_numpy(found))


def total_of(
    sums: Sums,
    asked: Mapping[OwnerId, RowsAsked],
    found: Mapping[OwnerId, RowParts],
    width: int,
) -> HeldSums:
    """The means of the rows that everybody added to who was asked."""
    total = np.zeros((len(sums.here), width), np.int16)
    whole = np.ones(len(sums.here), dtype=bool)
    for j, one in asked.items():
        rows = np.searchsorted(sums.here, np.unique(one.members.numpy()[:, 0]))
        if j in found and found[j].parts.shape == (len(rows), width):
            total[rows] += found[j].parts.numpy()
        else:
            whole[rows] = False
    exponent = next(iter(asked.values())).exponent if asked else 0
    return HeldSums(sums.here[whole], means_of(total[whole], exponent))


def wrong_members(members: Array, num_nodes: int) -> str | None:
    """Why no honest owner would ask for these nodes."""
    if members.ndim != 2 or members.shape[1] != 3:
        return "a list of nodes that is none"
    row, node, private = members.T
    if not len(row):
        return None
    if not 0 <= node.min() <= node.max() < num_nodes:
        return "nodes that this owner does not have"
    if row[0] < 0 or (np.diff(row) < 0).any() or not np.isin(private, (0, 1)).all():
        return "rows in disorder"
    if len(np.unique(members[:, :2], axis=0)) < len(row):
        return "one node twice"
    if (np.bincount(node)[node[private == 1]] > 1).any():
        return "a private node that is in two sums, whose difference would leave others out"
    return None


def wrong_groups(
    members: Array, groups: Array, me: OwnerId, receiver: OwnerId, at_least: int
) -> str | None:
    """Why these owners do not make a sum that hides single rows."""
    if groups.ndim != 2 or groups.shape[1] != 4:
        return "a list of owners that is none"
    row, owner, count, private = groups.T
    if not np.array_equal(np.unique(groups[:, :2], axis=0), groups[:, :2]):
        return "owners in disorder"
    if (count < 1).any() or (private < 0).any() or (private > count).any():
        return "owners that add nothing"
    if (owner == receiver).any():
        return "its own nodes"
    rows, at = np.unique(members[:, 0], return_inverse=True)
    mine = groups[owner == me]
    own = np.stack([rows, np.bincount(at), np.bincount(at, members[:, 2])], axis=1)
    if not np.array_equal(mine[:, [0, 2, 3]], own):
        return "another number of nodes than it told the others"
    if not np.array_equal(np.unique(row), rows):
        return "rows that this owner is not in"
    if (total_in(groups, rows, (private > 0).astype(int)) < 2).any():
        return "private nodes of one owner alone"
    if (total_in(groups, rows, private) < at_least).any():
        return f"fewer than {at_least} private nodes"
    return None


def lengths_of(x: NodeFeatures) -> Float[Array, " V"]:
    """The length of every row."""
    squares = x.multiply(x) if issparse(x) else np.square(x)
    return np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64).reshape(-1))


def may_be_summed(x: NodeFeatures) -> NodeIds:
    """The nodes that are not so short that a sum would show the other ones in it."""
    lengths = lengths_of(x)
    return np.flatnonzero(lengths >= SHORTEST * lengths.mean())


def bounded(x: NodeFeatures) -> NodeFeatures:
    """Rows as they are summed: none is longer than the mean, so that none outweighs others."""
    lengths = lengths_of(x)
    most = lengths.mean()
    column = (most / np.maximum(lengths, most)).astype(np.float32)[:, None] if most else 1.0
    return x.multiply(column).tocsr() if issparse(x) else x * column


def total_in(groups: Array, rows: NodeIds, values: NodeIds) -> NodeIds:
    """The sum of some values, one for each owner in a group, by row."""
    at = np.searchsorted(rows, groups[:, 0])
    return np.bincount(at, values, len(rows)).astype(np.int64)


def parts_of(x: NodeFeatures, asked: RowsAsked) -> Parts:
    """This owner's part of the mean of each row, in multiples of 2^(e − 14)."""
    members, groups = asked.members.numpy(), asked.groups.numpy()
    rows, at = np.unique(members[:, 0], return_inverse=True)
    total = total_in(groups, rows, groups[:, 2])
    shape = (len(rows), x.shape[0])
    pick = csr_array((np.ones(len(at), np.float32), (at, members[:, 1])), shape=shape)
    summed = pick @ x
    summed = summed.toarray() if issparse(summed) else summed
    unit = total[:, None].astype(np.float64) * 2.0 ** (asked.exponent - BITS + 1)
    most = 2.0 ** (BITS - 1)
    return np.rint(summed / unit).clip(-most, most).astype(np.int16)


def masked_parts(
    parts: Parts, asked: RowsAsked, me: OwnerId, key_with: Callable[[OwnerId, str], bytes]
) -> Parts:
    """The parts with a mask for each other owner in a row: one adds it, one takes it off."""
    groups = asked.groups.numpy()
    rows, found = np.unique(groups[:, 0]), parts.copy()
    for other in np.unique(groups[:, 1]).tolist():
        if other == me:
            continue
        shared = groups[groups[:, 1] == other][:, 0]
        at = np.searchsorted(rows, shared)
        mask = drawn(key_with(other, story(groups, shared, asked.exponent)), found[at].shape)
        found[at] += mask if me < other else -mask
    return found


def story(groups: Array, rows: NodeIds, exponent: int) -> str:
    """What two owners were told about the rows they share."""
    told = np.ascontiguousarray(groups[np.isin(groups[:, 0], rows)], dtype="<i4")
    return sha256(str(exponent).encode() + told.tobytes()).hexdigest()


def drawn(key: bytes, shape: tuple[int, ...]) -> Parts:
    """A mask of that shape."""
    return np.frombuffer(stream(key, 2 * int(np.prod(shape))), "<i2").reshape(shape)


def means_of(total: Parts, exponent: int) -> Array:
    """The means that sums of parts stand for."""
    return (total * np.float64(2.0 ** (exponent - BITS + 1))).astype(np.float32)


def exponent_of(x: NodeFeatures) -> int:
    """The smallest e with no feature above 2^e, between -100 and 100."""
    largest = float(abs(x).max()) if x.shape[0] else 0.0
    return int(np.frexp(largest)[1].clip(-100, 100)) if largest else -100
