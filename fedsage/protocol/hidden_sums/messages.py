"""Messages about masks, between owners and the server; keys, shares and signatures as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from fedsage.privacy.sums import Whole
from fedsage.protocol.messages import message


@message
class Batch:
    """S → D_i: make keys for this many sums."""

    number: int
    lots: int


NO_BATCH = Batch(-1, 0)
SIGNATURE = 64  # bytes
NO_SIGNATURES = torch.zeros(0, SIGNATURE, dtype=torch.int8)


@message
class Keys:
    """D_i → S → every D_j: the public keys of D_i for a batch of sums, signed."""

    channel: str  # for what owners send each other
    signing: str  # for the list of who is in a sum
    lots: Whole  # one key for each sum
    certificate: str
    signature: str


@message
class State:
    """S → D_i: vouch for the state of that name, if you know it."""

    name: str


@message
class Voucher:
    """D_i → S → D_j: its signature under a state that it computed from sums."""

    certificate: str
    signature: str


@message
class Members:
    """S → every D_i: the keys of all who take part in a batch."""

    keys: dict[str, Keys]


@message
class Boxes:
    """D_i → S, then from all others S → D_i: shares of secrets, each for one owner only."""

    boxes: dict[str, Whole]


@message
class Note:
    """D_i → S → every D_j: a message that all owners in a batch can read, and only they."""

    box: Whole
    signature: str


@message
class Held:
    """D_i → S: done; carries nothing else."""


@message
class Answered:
    """S → every D_i: whose masked numbers are in a sum, and the signatures of those before."""

    lot: int
    owners: str  # their numbers
    signed: str  # SUM/OWNER for each signature, of the sums since its last answer
    before: Whole  # the signatures


@message
class Shares:
    """D_i → S: its shares of the masks on a sum, and its signature on who is in the sum.

    In the order of the owners whose shares it holds: a share of the mask of one that answered,
    and of the key of one that did not.
    """

    shares: Whole
    signature: Whole


def answered(lot: int, owners: Iterable[int], before: Mapping[str, Whole]) -> Answered:
    """Who is in a sum, and by SUM/OWNER the signatures of those before."""
    listed = torch.stack(list(before.values())) if before else NO_SIGNATURES
    return Answered(lot, " ".join(map(str, sorted(owners))), " ".join(before), listed)
