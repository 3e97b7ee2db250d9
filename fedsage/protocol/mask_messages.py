"""What owners and the server tell each other about masks."""

from __future__ import annotations

from fedsage.protocol.messages import message


@message
class Batch:
    """S → D_i: make keys for so many sums."""

    number: int
    lots: int


NO_BATCH = Batch(-1, 0)


@message
class Keys:
    """D_i → S → every D_j: the public keys of D_i for a batch of sums, signed."""

    channel: str  # for what owners send each other
    signing: str  # for who is in a sum
    lots: str  # one for each sum
    certificate: str
    signature: str


@message
class Members:
    """S → every D_i: the keys of all who take part in a batch."""

    keys: dict[str, Keys]


@message
class Boxes:
    """D_i → S, and then of all others S → D_i: shares of secrets, each for one owner alone."""

    boxes: dict[str, str]


@message
class Held:
    """D_i → S: done, and nothing else."""


@message
class Answered:
    """S → every D_i: whose masked numbers are in a sum, and what they signed the last time."""

    lot: int
    owners: dict[str, bool]
    before: dict[str, str]


@message
class Shares:
    """D_i → S: its shares of what must come off a sum, and its name under who is in it."""

    own: dict[str, str]  # of the masks of owners that answered
    keys: dict[str, str]  # of the keys of owners that did not
    signature: str
