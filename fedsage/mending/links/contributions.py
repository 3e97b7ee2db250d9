"""What a contributor adds to another owner's sums: checked, in whole numbers, masked.

The receiver tells each contributor in which groups its nodes are, and which owners are in them
beside it, with one node each. Contributors of a group mask their parts pairwise, by keys that
also depend on what they were told: where the receiver tells two stories, masks do not cancel,
and it gets noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import issparse

from fedsage.errors import PrivacyError
from fedsage.privacy.sums import Whole, stream
from fedsage.privacy.unlike import Locks, locks_of, masks_for, num_tests, opened, sketches
from fedsage.protocol.messages import OwnerId, message
from fedsage.shapes import Array, NodeFeatures, NodeIds

BITS = 15  # of a part, beside the sign
Parts = Int[Array, "groups d_x"]  # modulo 2^16


@message
class GroupsAsked:
    """D_i → D_j, sealed: the groups of D_i that nodes of D_j are in. Lists, sorted by group."""

    members: Whole  # n × 2: group, node of D_j
    parties: Whole  # m × 2: group, owner
    exponent: int  # no feature is above 2^e


@message
class GroupParts:
    """D_j → D_i, sealed: what D_j adds to the means of those groups, masked.

    Locks open one of the masks if the rows that are summed differ (``privacy/unlike.py``): for
    every other owner, one for each group that both are in.
    """

    parts: Whole  # groups × d_x
    locks: Whole  # locks × 2 × tests


def answered(
    rows: NodeFeatures,
    words: int,
    asked: GroupsAsked,
    me: OwnerId,
    receiver: OwnerId,
    at_least: int,
    key_with: Callable[[OwnerId, str], bytes],
) -> GroupParts:
    """This owner's masked parts; refuses sums that would show single rows.

    Args:
        rows: Its rows as they are summed.
        words: The first column of which only presence is summed.
        asked: What the receiver wants.
        me: This owner.
        receiver: Who asks.
        at_least: The fewest nodes of a sum.
        key_with: A key in common with another owner, for some purpose.
    """
    members, parties = asked.members.numpy(), asked.parties.numpy()
    why = wrong_members(members, rows.shape[0]) or wrong_parties(
        members, parties, me, receiver, at_least
    )
    if not why and asked.exponent < exponent_of(rows):  # what is cut off depends on one row
        why = "a unit too fine for the largest values"
    if why:
        raise PrivacyError(f"Owner {receiver} asked for sums with {why}. It was sent nothing.")
    own = rows[members[:, 1]]
    sketch = sketches(own, words)
    tests = sketch.shape[1]
    parts = parts_of(own.toarray() if issparse(own) else own, asked)
    locks = [np.empty((0, 2, tests), np.uint64)]
    for other, at, told in others_in(asked, me):
        mask = drawn(key_with(other, f"parts, {told}"), parts[at].shape)
        parts[at] += mask if me < other else -mask
        key = key_with(other, f"locks, {told}")
        locks.append(locks_of(sketch[at], key))
        if me < other:
            parts[at] += masks_for(key, len(at), tests, parts.shape[1])
    numbers = np.concatenate(locks).astype(np.int64)
    return GroupParts(torch.from_numpy(parts), torch.from_numpy(numbers))


def total_of(
    asked: Mapping[OwnerId, GroupsAsked],
    found: Mapping[OwnerId, GroupParts],
    width: int,
    words: int,
) -> tuple[NodeIds, Float[Array, "groups d_x"]]:
    """The groups that everybody added to who was asked, whose rows differ, and their means."""
    names = np.unique(np.concatenate([one.members.numpy()[:, 0] for one in asked.values()]))
    total, whole = np.zeros((len(names), width), np.int16), np.ones(len(names), dtype=bool)
    locks: dict[tuple[OwnerId, OwnerId], Locks] = {}
    for j, one in asked.items():
        at, others = np.searchsorted(names, one.members.numpy()[:, 0]), list(others_in(one, j))
        count = [len(common) for _, common, _ in others]
        shapes = (len(at), width), (sum(count), 2, num_tests(width, words))
        if j not in found or (found[j].parts.shape, found[j].locks.shape) != shapes:
            whole[at] = False
            continue
        total[at] += found[j].parts.numpy()
        split = np.split(found[j].locks.numpy().astype(np.uint64), np.cumsum(count)[:-1])
        for (other, common, _), some in zip(others, split, strict=True):
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
    if group[0] < 0 or (np.diff(group) <= 0).any():
        return "groups in disorder"
    if len(np.unique(node)) < len(node):
        return "one node twice"
    return None


def wrong_parties(
    members: Array, parties: Array, me: OwnerId, receiver: OwnerId, at_least: int
) -> str | None:
    """Why these owners do not make groups that hide single rows."""
    if parties.ndim != 2 or parties.shape[1] != 2:
        return "something that is not a list of owners"
    group, owner = parties.T
    if not np.array_equal(np.unique(parties, axis=0), parties):
        return "owners in disorder"
    if (owner == receiver).any():
        return "its own nodes"
    names, count = np.unique(group, return_counts=True)
    if not (np.array_equal(group[owner == me], names) and np.array_equal(members[:, 0], names)):
        return "other groups than it told the others"
    if (count < at_least).any():
        return f"fewer than {at_least} nodes"
    return None


def parts_of(rows: Float[Array, "groups d_x"], asked: GroupsAsked) -> Parts:
    """This owner's part of the mean of each group, in multiples of 2^(e − 14)."""
    total = np.unique(asked.parties.numpy()[:, 0], return_counts=True)[1]
    unit = total[:, None].astype(np.float64) * 2.0 ** (asked.exponent - BITS + 1)
    most = 2.0 ** (BITS - 1)
    return np.rint(rows / unit).clip(-most, most).astype(np.int16)


def others_in(asked: GroupsAsked, me: OwnerId) -> Iterator[tuple[OwnerId, NodeIds, str]]:
    """Every other owner, the places of the groups it is in, and what it was told of them."""
    parties = asked.parties.numpy()
    names = np.unique(parties[:, 0])
    for other in np.unique(parties[:, 1]).tolist():
        if other != me:
            common = parties[parties[:, 1] == other][:, 0]
            yield other, np.searchsorted(names, common), story(asked, common)


def story(asked: GroupsAsked, names: NodeIds) -> str:
    """What two owners were told about the groups that both are in."""
    parties = asked.parties.numpy()
    told = np.ascontiguousarray(parties[np.isin(parties[:, 0], names)], dtype="<i4")
    return sha256(f"{asked.exponent} ".encode() + told.tobytes()).hexdigest()


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
