"""How an owner masks what it adds to a sum: Bonawitz et al., 2017, for many sums at a time.

A *lot* is what one sum needs: every owner has a key for it, with which any two of them agree on
a mask that one adds and the other subtracts, and a mask of its own. Both secrets are shared
among its neighbors, so that the sum can be computed even if a third of the owners vanish. For
an owner that answered, the others reveal their shares of its own mask; for one that did not,
those of its key; never both. Owners sign their keys, and the list of who answered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fedsage.errors import PrivacyError
from fedsage.privacy.keys import (
    PUBLIC,
    SIZE,
    circle,
    derived,
    in_bytes,
    is_key,
    is_signed,
    new_secret,
    public_key,
    sealed,
    signed,
    split,
    threshold_of,
    unsealed,
    verifying_key,
)
from fedsage.protocol.hidden_sums.integers import in_numbers, in_raw
from fedsage.protocol.hidden_sums.masks import Masks, lot_key, signed_state
from fedsage.protocol.hidden_sums.messages import (
    SIGNATURE,
    Answered,
    Batch,
    Boxes,
    Held,
    Keys,
    Members,
    Shares,
    State,
    Voucher,
)
from fedsage.protocol.messages import Each, Ints, OwnerId
from fedsage.protocol.procedures import Sealed, in_sums, procedure

REACH = 10  # neighbors on each side if there are many owners
MOST_LOTS = 1024  # sums that keys are made for at a time
FEW = 30  # with fewer owners, all are neighbors


def signed_keys(run: str, owner: OwnerId, number: int, keys: Keys) -> bytes:
    """What an owner signs when it hands out keys."""
    lots = in_raw(keys.lots).hex()
    return json.dumps([run, owner, number, keys.channel, keys.signing, lots]).encode()


def signed_list(run: str, lot: int, owners: Sequence[OwnerId]) -> bytes:
    """What an owner signs when it reveals shares."""
    return json.dumps([run, lot, sorted(owners)]).encode()


@procedure(
    phase="evaluation",
    shapes=lambda plan: {"lots": Ints((None,))},
    leaves="For hidden sums: keys that you make for the run, signed with your certificate.",
    when=in_sums,
    private="no data",
)
def make_keys(mine: Masks, batch: Batch) -> Keys:
    """Make new keys for a batch of sums; forget those before."""
    if batch.number <= mine.used or batch.number <= mine.batch.number:
        raise PrivacyError(f"Keys from sum {batch.number} on were asked for again.")
    if batch.lots > MOST_LOTS:
        raise PrivacyError(
            f"Keys for {batch.lots} sums were asked for, but at most {MOST_LOTS} are allowed."
        )
    mine.batch, mine.channel, mine.part = batch, new_secret(), new_secret()
    mine.pairs = [new_secret() for _ in range(batch.lots)]
    mine.own = [new_secret() for _ in range(batch.lots)]
    mine.members, mine.shares, mine.common = {}, {}, b""
    lots = in_numbers(b"".join(map(public_key, mine.pairs)))
    signing = verifying_key(mine.channel)
    keys = Keys(public_key(mine.channel).hex(), signing, lots, mine.identity.certificate, "")
    text = signed_keys(mine.run, mine.owner, batch.number, keys)
    return replace(keys, signature=mine.identity.sign(text))


@procedure(
    phase="evaluation",
    uses=Sealed,
    shapes=lambda plan: {"boxes": Each(Ints((None,)))},
    check=lambda plan, owner, members, reply: (
        None
        if {*reply.boxes} == {*members.keys} - {str(owner)}
        else "shares that are not for all other owners"
    ),
    leaves="For hidden sums: shares of the secrets of your masks, each readable by one owner.",
    when=in_sums,
    private="no data",
)
def share_secrets(mine: Masks, members: Members) -> Boxes:
    """A box for every owner: a part of the common secret and, for neighbors, the shares."""
    if mine.members:
        raise PrivacyError("The members of a batch were sent twice. Nothing was sent.")
    found = {int(i): keys for i, keys in members.keys.items()}
    for i, keys in found.items():
        text = signed_keys(mine.run, i, mine.batch.number, keys)
        mine.identity.check(i, keys.certificate, text, keys.signature)
        check_keys(mine, i, keys)
    if mine.owner not in found or found[mine.owner].channel != public_key(mine.channel).hex():
        raise PrivacyError("Keys that are not this owner's were handed out in its name.")
    if len(found) < mine.least:
        raise PrivacyError(
            f"Sums over {len(found)} owners were asked for, but this owner takes part only "
            f"with {mine.least} or more. Nothing was sent."
        )
    mine.members = found
    mine.around = circle(list(found), seed_of(found), reach_of(found))
    holders = holders_of(mine.around, mine.owner)
    texts = dict.fromkeys(found, in_bytes(mine.part))
    for secrets in zip(mine.pairs, mine.own, strict=True):
        for secret in secrets:
            parts = split(secret, len(holders), threshold_of(len(holders), len(found)))
            for holder, share in zip(holders, parts, strict=True):
                texts[holder] += in_bytes(share)
    mine.shares = {mine.owner: texts.pop(mine.owner)}
    return Boxes({
        str(i): in_numbers(sealed(mine.key(i), text, f"from {mine.owner} to {i}"))
        for i, text in texts.items()
    })  # fmt: skip


@procedure(phase="evaluation", when=in_sums, private="no data")
def hold_shares(mine: Masks, boxes: Boxes) -> Held:
    """Open the boxes from the others; from here on, sums can be asked for."""
    for name, box in boxes.boxes.items():
        i = int(name)
        mine.shares[i] = unsealed(mine.key(i), in_raw(box), f"from {i} to {mine.owner}")
        secrets = 2 * mine.batch.lots if mine.owner in holders_of(mine.around, i) else 0
        if len(mine.shares[i]) != SIZE * (1 + secrets):
            raise PrivacyError(f"Owner {i} sent shares that cannot be used. Nothing was sent.")
    if set(mine.shares) != set(mine.members):
        raise PrivacyError("Not all members of the batch sent their shares. Nothing was sent.")
    parts = b"".join(mine.shares[i][:SIZE] for i in sorted(mine.shares))
    mine.common = derived(parts, f"{mine.run}, batch {mine.batch.number}, common")
    return Held()


@procedure(
    phase="evaluation",
    shapes=lambda plan: {"shares": Ints((None, SIZE)), "signature": Ints((SIGNATURE,))},
    leaves="After each hidden sum: shares of the masks to remove from it, never of both "
    "masks of one owner.",
    when=in_sums,
    private="no data",
)
def give_shares(mine: Masks, answered: Answered) -> Shares:
    """The shares that open one sum; refuses a sum of too few, or a second list of owners."""
    lot, owners = answered.lot, sorted({int(i) for i in answered.owners.split()})
    text, at = signed_list(mine.run, lot, owners), lot - mine.batch.number
    needed = max(threshold_of(len(mine.members)), mine.enough, mine.fewest)
    if lot != mine.used or mine.owner not in owners or not set(owners) <= set(mine.members):
        raise PrivacyError(f"This owner added nothing to sum {lot} of {owners}.")
    if len(owners) < needed:
        raise PrivacyError(
            f"A sum of {len(owners)} owners was to be opened, but {needed} are required."
        )
    if mine.told.get(lot, text) != text:
        raise PrivacyError(f"The server gave two different lists of who is in sum {lot}.")
    check_stories(mine, lot, signatures_in(answered))
    mine.remembered.check_sum(mine.asked, owners)
    before = {one: told for one, told in mine.told.items() if one >= lot - 1}
    mine.told = before | {lot: text}
    mine.signers = {i: keys.signing for i, keys in mine.members.items()}
    starts = {i: SIZE * (1 + 2 * at + (i in owners)) for i in held_by(mine.around, mine.owner)}
    shares = b"".join(mine.shares[i][start : start + SIZE] for i, start in starts.items())
    signature = bytes.fromhex(signed(mine.channel, text))
    return Shares(in_numbers(shares).reshape(-1, SIZE), in_numbers(signature))


@procedure(
    phase="evaluation",
    leaves="If an owner was away: your signature under a checksum of what it missed.",
    when=in_sums,
)
def vouch(mine: Masks, state: State) -> Voucher:
    """Sign the state that follows from sums, for owners that could not check it, if known."""
    checksum = mine.remembered.states.get(state.name)
    if checksum is None:
        return Voucher("", "")
    text = signed_state(mine.run, state.name, checksum)
    return Voucher(mine.identity.certificate, mine.identity.sign(text))


def check_keys(mine: Masks, owner: OwnerId, keys: Keys) -> None:
    """Refuse keys that are none, and name their owner: with them no sum can be added up."""
    lots = [lot_key(keys, at) for at in range(mine.batch.lots)]
    whole = keys.lots.numel() == PUBLIC * mine.batch.lots
    if not whole or not all(map(is_key, [in_hex(keys.channel), *lots])):
        raise PrivacyError(f"Owner {owner} sent keys that cannot be used. Nothing was sent.")


def signatures_in(answered: Answered) -> dict[tuple[int, OwnerId], str]:
    """The signatures that come with a list of owners, by sum and owner."""
    places = [tuple(map(int, name.split("/"))) for name in answered.signed.split()]
    found = [in_raw(row).hex() for row in answered.before]
    return {(number, i): one for (number, i), one in zip(places, found, strict=False)}


def check_stories(mine: Masks, lot: int, before: Mapping[tuple[int, OwnerId], str]) -> None:
    """Refuse to continue if the server gave others another list of owners for the last sum."""
    last = max((one for one in mine.told if one < lot), default=None)
    if last is None:
        return
    listed = {i: signature for (number, i), signature in before.items() if number == last}
    if len(listed) < threshold_of(len(mine.signers)):
        raise PrivacyError(
            f"Only {len(listed)} owners signed who was in sum {last}; more are required. "
            "Nothing was sent."
        )
    for i, signature in listed.items():
        if not is_signed(mine.signers.get(i, ""), mine.told[last], signature):
            raise PrivacyError(
                f"Owner {i} signed another list of who was in sum {last} than this owner got: "
                "the server gave two different lists. Nothing was sent."
            )


def in_hex(text: str) -> bytes:
    """A key as bytes; none if it is not written as one."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def reach_of(members: Collection[OwnerId]) -> int:
    """How many neighbors an owner has on each side of the circle."""
    return REACH if len(members) >= FEW else FEW


def seed_of(members: Mapping[OwnerId, Keys]) -> bytes:
    """The seed of the circle: all keys, so that nobody can choose it."""
    return "".join(members[i].channel for i in sorted(members)).encode()


def held_by(around: Mapping[OwnerId, Sequence[OwnerId]], holder: OwnerId) -> list[OwnerId]:
    """Whose shares an owner holds: those that have it as a neighbor, and itself."""
    return [i for i in sorted(around) if holder == i or holder in around[i]]


def holders_of(around: Mapping[OwnerId, Sequence[OwnerId]], owner: OwnerId) -> list[OwnerId]:
    """Who holds shares of an owner's secrets: its neighbors and itself."""
    return sorted([*around[owner], owner])
