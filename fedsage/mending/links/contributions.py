"""What a contributor adds to another owner's sums: checked, in whole numbers, masked.

The receiver tells each contributor in which groups its nodes are, and with how many nodes which
owners are in them beside it. Contributors of a group mask their parts pairwise, by keys that
also depend on what they were told: where the receiver tells two stories, masks do not cancel,
and it gets noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, issparse

from fedsage.errors import PrivacyError
from fedsage.mending.links.summed_rows import summed_rows
from fedsage.privacy.masks import stream
from fedsage.privacy.sums import Whole
from fedsage.privacy.unlike import TESTS, Locks, locks_of, masks_for, opened, sketches
from fedsage.protocol.messages import OwnerId, message
from fedsage.shapes import Array, NodeFeatures, NodeIds

BITS = 15  # of a part, beside the sign
Parts = Int[Array, "groups d_x"]  # modulo 2^16


@message
class GroupsAsked:
    """D_i → D_j, sealed: the groups of D_i that nodes of D_j are in. Lists, sorted by group."""

    members: Whole  # n × 2: group, node of D_j
    parties: Whole  # m × 3: group, owner, how many of its nodes
    exponent: int  # no feature is above 2^e
    words: int  # the first column of which only presence is summed


@message
class GroupParts:
    """D_j → D_i, sealed: what D_j adds to the means of those groups, masked.

    Locks open one of the masks if the rows that are summed differ (``privacy/unlike.py``): for
    every other owner, one for each group that the two are the first owners of.
    """

    parts: Whole  # groups × d_x
    locks: Whole  # locks × 2 × tests


def answered(
    x: NodeFeatures,
    words: int,
    asked: GroupsAsked,
    me: OwnerId,
    receiver: OwnerId,
    at_least: int,
    key_with: Callable[[OwnerId, str], bytes],
) -> GroupParts:
    """This owner's masked parts; refuses sums that would show single rows."""
    members, parties = asked.members.numpy(), asked.parties.numpy()
    why = wrong_members(members, x.shape[0]) or wrong_parties(
        members, parties, me, receiver, at_least
    )
    if not 0 <= asked.words <= words:
        why = "values of words"
    if why:
        raise PrivacyError(f"Owner {receiver} asked for sums with {why}. It was sent nothing.")
    summed = own_sums(summed_rows(x, asked.words), asked)
    sketch = sketches(summed)
    summed = summed.toarray() if issparse(summed) else summed
    parts, locks = parts_of(summed, asked), [np.empty((0, 2, TESTS), np.uint64)]
    for other, at, told in others_in(asked, me):
        mask = drawn(key_with(other, f"parts, {told}"), parts[at].shape)
        parts[at] += mask if me < other else -mask
        key, two = key_with(other, f"locks, {told}"), at[locked(asked, me, other)[at]]
        locks.append(locks_of(sketch[two], key))
        if me < other:
            parts[two] += masks_for(key, len(two), parts.shape[1])
    numbers = np.concatenate(locks).astype(np.int64)
    return GroupParts(torch.from_numpy(parts), torch.from_numpy(numbers))


def total_of(
    asked: Mapping[OwnerId, GroupsAsked], found: Mapping[OwnerId, GroupParts], width: int
) -> tuple[NodeIds, Float[Array, "groups d_x"]]:
    """The groups that everybody added to who was asked, whose rows differ, and their means."""
    names = np.unique(np.concatenate([one.members.numpy()[:, 0] for one in asked.values()]))
    total, whole = np.zeros((len(names), width), np.int16), np.ones(len(names), dtype=bool)
    locks: dict[tuple[OwnerId, OwnerId], Locks] = {}
    for j, one in asked.items():
        own = np.unique(one.members.numpy()[:, 0])
        others = [(other, at[locked(one, j, other)[at]]) for other, at, _ in others_in(one, j)]
        at, count = np.searchsorted(names, own), [len(common) for _, common in others]
        shapes = (len(at), width), (sum(count), 2, TESTS)
        if j not in found or (found[j].parts.shape, found[j].locks.shape) != shapes:
            whole[at] = False
            continue
        total[at] += found[j].parts.numpy()
        split = np.split(found[j].locks.numpy().astype(np.uint64), np.cumsum(count)[:-1])
        for (other, common), some in zip(others, split, strict=True):
            locks[j, other] = some
            if (other, j) in locks:
                unlike, masks = opened(locks[other, j], some, width)
                total[at[common]] -= masks
                whole[at[common[~unlike]]] = False
    exponent = next(iter(asked.values())).exponent
    return names[whole].astype(np.int64), means_of(total[whole], exponent)


def wrong_members(members: Array, num_nodes: int) -> str | None:
    """Why no honest owner would ask for these nodes."""
    if members.ndim != 2 or members.shape[1] != 2:
        return "something that is not a list of nodes"
    group, node = members.T
    if not len(group):
        return None
    if not 0 <= node.min() <= node.max() < num_nodes:
        return "nodes that this owner does not have"
    if group[0] < 0 or (np.diff(group) < 0).any():
        return "groups in disorder"
    if len(np.unique(node)) < len(node):
        return "one node twice"
    return None


def wrong_parties(
    members: Array, parties: Array, me: OwnerId, receiver: OwnerId, at_least: int
) -> str | None:
    """Why these owners do not make groups that hide single rows."""
    if parties.ndim != 2 or parties.shape[1] != 3:
        return "something that is not a list of owners"
    group, owner, count = parties.T
    if not np.array_equal(np.unique(parties[:, :2], axis=0), parties[:, :2]):
        return "owners in disorder"
    if (count < 1).any():
        return "owners that add nothing"
    if (owner == receiver).any():
        return "its own nodes"
    names, own = np.unique(members[:, 0], return_counts=True)
    if not np.array_equal(parties[owner == me][:, [0, 2]], np.stack([names, own], axis=1)):
        return "another number of nodes than it told the others"
    if not np.array_equal(np.unique(group), names):
        return "groups that this owner is not in"
    if (total_in(parties, names, np.ones_like(count)) < 2).any():
        return "nodes of one owner alone"
    if (total_in(parties, names, count) < at_least).any():
        return f"fewer than {at_least} nodes"
    return None


def total_in(parties: Array, names: NodeIds, values: NodeIds) -> NodeIds:
    """The sum of some values, one for each owner in a group, by group."""
    at = np.searchsorted(names, parties[:, 0])
    return np.bincount(at, values, len(names)).astype(np.int64)


def own_sums(x: NodeFeatures, asked: GroupsAsked) -> NodeFeatures:
    """The sum of this owner's rows in each group."""
    members = asked.members.numpy()
    names, at = np.unique(members[:, 0], return_inverse=True)
    shape = (len(names), x.shape[0])
    return csr_array((np.ones(len(at), np.float32), (at, members[:, 1])), shape=shape) @ x


def parts_of(summed: Float[Array, "groups d_x"], asked: GroupsAsked) -> Parts:
    """This owner's part of the mean of each group, in multiples of 2^(e − 14)."""
    parties = asked.parties.numpy()
    total = total_in(parties, np.unique(parties[:, 0]), parties[:, 2])
    unit = total[:, None].astype(np.float64) * 2.0 ** (asked.exponent - BITS + 1)
    most = 2.0 ** (BITS - 1)
    return np.rint(summed / unit).clip(-most, most).astype(np.int16)


def others_in(asked: GroupsAsked, me: OwnerId) -> Iterator[tuple[OwnerId, NodeIds, str]]:
    """Every other owner, the places of the groups it is in, and what it was told of them."""
    parties = asked.parties.numpy()
    names = np.unique(parties[:, 0])
    for other in np.unique(parties[:, 1]).tolist():
        if other != me:
            common = parties[parties[:, 1] == other][:, 0]
            yield other, np.searchsorted(names, common), story(asked, common)


def locked(asked: GroupsAsked, me: OwnerId, other: OwnerId) -> Bool[Array, " groups"]:
    """The groups in which these two owners hide their rows from the receiver if they are alike.

    They are the first two of a group. A mean is a single row only if all owners' rows are that
    row, so two are enough; who shares a lock can learn the other one's sketches.
    """
    parties = asked.parties.numpy()
    first = np.unique(parties[:, 0], return_index=True)[1]
    pairs = np.stack([parties[first, 1], parties[first + 1, 1]], axis=1)
    found: Array = (pairs == sorted([me, other])).all(axis=1)
    return found


def story(asked: GroupsAsked, names: NodeIds) -> str:
    """What two owners were told about the groups that both are in."""
    parties = asked.parties.numpy()
    told = np.ascontiguousarray(parties[np.isin(parties[:, 0], names)], dtype="<i4")
    return sha256(f"{asked.exponent} {asked.words} ".encode() + told.tobytes()).hexdigest()


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
