"""Which owner spoils a hidden sum: the round is tried again without one group after another.

Masks hide what each owner sends, so one that sends a wrong change shows only in the sum. If a
sum cannot be that of honest owners, the round is tried again without some of them, drawn anew,
until it can. In which order groups are left out is not told to anybody before they have sent
their numbers: an owner that behaves while another is left out has to guess when.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from fedsage.errors import ProtocolError
from fedsage.protocol.changes.accord import accord_of, discord, impossible
from fedsage.protocol.changes.follow import Turn
from fedsage.protocol.changes.owner import local_change_c
from fedsage.protocol.changes.state import Change, Common
from fedsage.protocol.engine import Miss
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import OwnerId

FEWEST = 3  # owners in a sum: of two, each could subtract its own part
STRIKES = 3  # rounds that an owner spoils before it is left out without a search
CLEARLY = 0.15  # how much the mean cosine must differ without an owner to blame it
Try = tuple[Change, Sequence[OwnerId], int]  # a sum, who is in it, the number of the try


@dataclass(slots=True)
class Search:
    """Finds who spoils sums, and remembers how often somebody did."""

    exchange: Exchange
    strikes: Counter[OwnerId] = field(default_factory=Counter)

    @property
    def left_out(self) -> list[OwnerId]:
        """Owners that are no longer asked."""
        return [i for i, rounds in self.strikes.items() if rounds >= STRIKES]

    def sum_without(
        self, common: Common, turn: Turn, total: Change, added: Sequence[OwnerId]
    ) -> Try:
        """A sum of the round without whoever spoils it; the given one if that is nobody."""
        suspects, size, again = self.in_order(added), self.spare(added), 0
        with_all, found = accord_of(common, total), total
        while size:
            for group in [suspects[k : k + size] for k in range(0, len(suspects), size)]:
                again += 1
                turn = replace(turn, again=again, cause=total)
                found = self.exchange.sum(
                    local_change_c, {i: turn for i in added if i not in group}
                )
                other = abs(accord_of(common, found) - with_all) > CLEARLY
                if not discord(common, found) and (other or impossible(common, total)):
                    break
            else:
                return self.as_it_is(common, total, added)
            suspects, size = group, len(group) // 2
        if not again:
            return self.as_it_is(common, total, added)
        self.blame(group[0], with_all, accord_of(common, found))
        return found, self.exchange.answered[local_change_c.name], again

    def as_it_is(self, common: Common, total: Change, added: Sequence[OwnerId]) -> Try:
        """The sum with everybody, if training can lead to it."""
        if why := impossible(common, total):
            names = ", ".join(self.exchange.engine.name_of(i) for i in added)
            raise ProtocolError(
                f"The sum of {local_change_c.name} has {why}. One of these owners sent what no "
                f"training leads to; the masks hide which: {names}."
            )
        return total, added, 0

    def in_order(self, added: Collection[OwnerId]) -> list[OwnerId]:
        """Suspects, those first that spoiled a sum before; otherwise drawn."""
        drawn = secrets.SystemRandom().sample(sorted(added), len(added))
        return sorted(drawn, key=lambda i: -self.strikes[i])

    def spare(self, added: Collection[OwnerId]) -> int:
        """How many owners a sum can do without: two thirds of all must be in it."""
        everyone = len(self.exchange.owners)
        return max(0, len(added) - max(everyone - everyone // 3, FEWEST))

    def blame(self, owner: OwnerId, with_it: float, without: float) -> None:
        """Note that a sum is right without an owner; the run may need it nevertheless."""
        self.strikes[owner] += 1
        why = (
            f"owners' changes have a mean cosine of {with_it:.2f} with its own, and of "
            f"{without:.2f} without"
        )
        self.exchange.misses.append(Miss(owner, local_change_c.name, why))
        engine = self.exchange.engine
        if len(self.exchange.owners) - 1 < engine.min_owners:
            raise ProtocolError(
                f"Owner {engine.name_of(owner)} spoils the sum: {why}. The run needs all "
                "owners. Leave that one out, or allow the run to go on without it "
                "(--min-owners)."
            )
