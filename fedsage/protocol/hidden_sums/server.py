"""Sums of which the server sees only the total: the server's side of masking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Any, TypeVar

from fedsage.config import Config
from fedsage.errors import Absent, ConfigError, PrivacyError, ProtocolError
from fedsage.privacy.keys import (
    PRIME,
    agreed,
    circle,
    derived,
    fitting,
    in_bytes,
    joined,
    threshold_of,
)
from fedsage.privacy.sums import Whole, masked
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.hidden_sums.integers import in_raw, whole_numbers, with_points
from fedsage.protocol.hidden_sums.masks import about, checksum_of, lot_key
from fedsage.protocol.hidden_sums.messages import (
    Batch,
    Boxes,
    Keys,
    Members,
    Shares,
    State,
    Voucher,
)
from fedsage.protocol.hidden_sums.messages import answered as told
from fedsage.protocol.hidden_sums.owner import (
    give_shares,
    held_by,
    hold_shares,
    holders_of,
    make_keys,
    reach_of,
    seed_of,
    share_secrets,
    vouch,
)
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Open, Procedure, Reply, Request, Sealed, Summed

LOTS = 64  # sums that keys are made for at a time, at most
BESIDES = 12  # sums of a run besides those of its rounds
RETRY = 4  # sums after which an owner that was absent gets keys, if it is back
TRIES = 3
WITHOUT_KEYS = "it was absent when the keys for sums were made"
M = TypeVar("M")


class HiddenSums:
    """Numbers the sums (a *lot* is one sum) and removes masks from them.

    Args:
        exchange: Used to ask owners.
        run: The name of the run.
        config: Its settings, from which follows how many sums there will be.
    """

    def __init__(self, exchange: Exchange, run: str, config: Config) -> None:
        self.exchange, self.run = exchange, run
        self.lots = lots_for(2 * config.classifier.rounds_c + BESIDES)
        self.keys: Mapping[OwnerId, Keys] = {}
        self.around: Mapping[OwnerId, Sequence[OwnerId]] = {}
        self.able: Collection[OwnerId] = ()  # owners with keys and with the others' shares
        self.first, self.next = -1, 0
        self.signed: dict[
            OwnerId, dict[str, Whole]
        ] = {}  # by owner: signatures of its last sums
        self.bound: dict[str, str] = {}  # what all owners were told, by procedure

    def sum(
        self,
        procedure: Procedure[Any, Request, Reply],
        request: Request | Mapping[OwnerId, Request],
        combine: Callable[[Sequence[Reply]], Reply],
        least: int | None,
    ) -> Reply:
        """The sum of masked replies; a bad reply shows only in the sum."""
        exchange = self.exchange
        if combine is not add_up:
            raise ConfigError(
                f"The replies to {procedure.name} are to be combined by a rule other than the "
                "sum, which needs each owner's own reply. Use --privacy open."
            )
        requests = exchange.requests_of(procedure, request)
        lot = self.lot_for(requests)
        able = {i: one for i, one in requests.items() if i in self.able}
        away = [Miss(i, procedure.name, WITHOUT_KEYS) for i in requests if i not in able]
        exchange.misses += away
        replies = exchange.ask(procedure, able, Summed, least, lot)
        added = {i: reply for i, reply in replies.items() if not procedure.silent(reply)}
        if not added:  # then nothing is masked
            return add_up(list(replies.values()))
        what = about(self.run, lot, procedure, able[min(added)], self.bound)
        total = self.opened(add_up(list(added.values())), lot, list(added), what)
        wrong = exchange.guard.wrong_sum(procedure, total, len(added), exchange.agreed)
        if wrong:
            names = ", ".join(exchange.engine.name_of(i) for i in added)
            raise ProtocolError(
                f"The sum of {procedure.name} has {wrong}. One of these owners sent what no "
                f"training leads to; the masks hide which: {names}."
            )
        exchange.on_sum(procedure, total)
        return total

    def tell(self, procedure: Procedure[Any, Any, Any], request: Any) -> None:
        """Note what all owners were told: masks cancel only among those that know it."""
        self.bound[procedure.name] = checksum_of(request)

    def vouchers(self, state: str) -> dict[str, Voucher]:
        """Signatures of owners that computed a state themselves."""
        asked = dict.fromkeys(self.exchange.owners, State(state))
        replies = self.exchange.ask(vouch, asked, Open, 0)
        return {str(i): one for i, one in replies.items() if one.signature}

    def ready(self, sums: int) -> list[OwnerId]:
        """Who has keys; they last for that many sums, if all are over these owners."""
        everyone = self.exchange.owners
        self.renew(everyone, sums)
        return [i for i in everyone if i in self.able]

    def lot_for(self, asked: Collection[OwnerId]) -> int:
        """The lot of the next sum."""
        self.renew(asked)
        self.next += 1
        return self.next - 1

    def renew(self, asked: Collection[OwnerId], sums: int = 1) -> None:
        """Make new keys when they run out or absent owners return."""
        age = self.next - self.first
        absent = age >= RETRY and set(asked) - set(self.able)
        if self.first < 0 or age + sums > self.lots or absent:
            self.make_batch()

    def make_batch(self) -> None:
        """Make keys for the next sums; all who take part share their secrets."""
        exchange, asked = self.exchange, list(self.exchange.owners)
        for _ in range(TRIES):
            number = max(self.next, self.first + 1)
            batch = Batch(number, self.lots)
            keys = exchange.ask(make_keys, dict.fromkeys(asked, batch), Open)
            members = Members({str(i): one for i, one in keys.items()})
            boxes = exchange.ask(share_secrets, dict.fromkeys(keys, members), Sealed)
            self.first = self.next = number
            if set(boxes) == set(keys):
                self.keys = keys
                self.around = circle(list(keys), seed_of(keys), reach_of(keys))
                given = {i: boxes_for(i, boxes) for i in boxes}
                self.able = set(exchange.ask(hold_shares, given, Open))
                return
            asked = list(boxes)
        raise Absent("Owners come and go too fast to agree on keys. Try again later.")

    def opened(self, total: M, lot: int, answered: Sequence[OwnerId], what: str) -> M:
        """A sum without its masks; ``what`` it is over is part of their keys."""
        asked = {i: told(lot, answered, self.signed.get(i, {})) for i in answered}
        needed = threshold_of(len(self.keys))
        shares = self.exchange.ask(give_shares, asked, Open, needed)
        signed = {f"{lot}/{i}": one.signature for i, one in shares.items()}
        for i in answered:  # whoever gave no shares may have got the list, or may not
            self.signed[i] = signed | ({} if i in shares else self.signed.get(i, {}))
        plus, minus = self.masks_on(lot, answered, shares, what)
        numbers, rebuilt = whole_numbers(total)
        return with_points(rebuilt(masked(numbers, minus, plus)))

    def masks_on(
        self,
        lot: int,
        answered: Sequence[OwnerId],
        shares: Mapping[OwnerId, Shares],
        what: str,
    ) -> tuple[list[bytes], list[bytes]]:
        """The seeds of the masks that were added to a sum, and of those subtracted."""
        given = {i: self.by_owner(i, one) for i, one in shares.items()}
        plus = [derived(in_bytes(self.secret_of(j, given)), "own mask") for j in answered]
        minus: list[bytes] = []
        for gone in set(self.keys) - set(answered):
            secret = self.secret_of(gone, given)
            for j in set(self.around[gone]) & set(answered):
                public = lot_key(self.keys[j], lot - self.first)
                seed = agreed(secret, public, what)
                (plus if j < gone else minus).append(seed)
        return plus, minus

    def by_owner(self, holder: OwnerId, shares: Shares) -> dict[OwnerId, int]:
        """The shares that an owner sent, by whose they are; none if it sent another number."""
        of = held_by(self.around, holder)
        found = [int.from_bytes(in_raw(row), "big") % PRIME for row in shares.shares]
        return dict(zip(of, found, strict=True)) if len(of) == len(found) else {}

    def secret_of(self, owner: OwnerId, given: Mapping[OwnerId, Mapping[OwnerId, int]]) -> int:
        """A secret of an owner, from the shares that its neighbors sent."""
        holders = holders_of(self.around, owner)
        found = {
            place: given[i][owner]
            for place, i in enumerate(holders)
            if owner in given.get(i, {})
        }
        needed = threshold_of(len(holders), len(self.keys))
        if len(found) < needed:
            raise Absent(
                f"{len(found)} owners sent shares of the mask of owner "
                f"{self.exchange.engine.name_of(owner)}, but {needed} are needed: too many are "
                "gone. Use the same command with --resume when they are back."
            )
        return joined(self.right_shares(owner, found, holders, needed), len(holders), needed)

    def right_shares(
        self, owner: OwnerId, found: Mapping[int, int], holders: Sequence[OwnerId], needed: int
    ) -> dict[int, int]:
        """The shares that fit together; names who sent another one."""
        names = {place: self.exchange.engine.name_of(holders[place]) for place in found}
        try:
            right = fitting(found, len(holders), needed)
        except PrivacyError:
            raise ProtocolError(
                f"Shares of the mask of owner {self.exchange.engine.name_of(owner)} do not fit "
                f"together. One of these owners sent a wrong one: {', '.join(names.values())}."
            ) from None
        for place in found.keys() - right.keys():
            why = "a share of a mask that does not fit the others'"
            self.exchange.misses.append(Miss(holders[place], give_shares.name, why))
        return right


def lots_for(sums: int) -> int:
    """The size of batches for that many sums: as few batches as can be, and none half used."""
    return ceil(sums / ceil(sums / LOTS))


def boxes_for(owner: OwnerId, boxes: Mapping[OwnerId, Boxes]) -> Boxes:
    """What the others sent to one owner."""
    return Boxes({str(i): one.boxes[str(owner)] for i, one in boxes.items() if i != owner})
