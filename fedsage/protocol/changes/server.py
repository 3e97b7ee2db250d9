"""The server's side of training by changes: add them up, take the step, send the sum.

Masks hide what each owner sends, so one that sends a wrong change shows only in the sum. If a
sum cannot be that of honest owners, the round is tried again without some of them, drawn anew,
until it can. In which order groups are left out is not told to anybody before they have sent
their numbers: an owner that behaves while another is left out has to guess when.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fedsage.errors import ProtocolError
from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import as_sum, decode
from fedsage.protocol.changes.check import discord, impossible
from fedsage.protocol.changes.follow import CLASSIFIER, News, Turn, state_name
from fedsage.protocol.changes.owner import local_change_c, receive_change
from fedsage.protocol.changes.state import (
    FIXED,
    NO_CHANGE,
    RIGHT,
    Change,
    Common,
    checksum_of,
    first_common,
    packed,
    unpacked,
)
from fedsage.protocol.changes.step import accord_of, guide_of, next_state
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.messages import Classifier, Hits, OwnerId
from fedsage.protocol.plan import Miss
from fedsage.protocol.procedures import Summed, in_sums
from fedsage.protocol.server import Rule, average

FEWEST = 3  # owners in a sum: of two, each could subtract its own part
SEARCHES = 6  # rounds in which somebody is searched for: owners agree to twice as many
STRIKES = 3  # rounds that an owner spoils before it is left out without a search
CLEARLY = 0.15  # how much the mean cosine must differ without an owner to blame it
Try = tuple[Change, Sequence[OwnerId], int]  # a sum, who is in it, the number of the try


class ByChanges:
    """The server's side of training by changes: add them up, take the step, send the sum."""

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        self.exchange, self.rule = exchange, rule
        self.kept: Sequence[OwnerId] = ()  # owners that kept the best φ so far
        self.search = Search(exchange)

    def begin(self, classifier: Classifier) -> None:
        """Bring all owners to the start: of the plan, or of where the run was stopped."""
        plan, owners = self.exchange.plan, len(self.exchange.owners)
        if classifier.moments:
            self.common = unpacked(plan.config, classifier)
            news = vouched(self.exchange, CLASSIFIER, everything(self.common))
        else:
            weight = plan.num_nodes / len(plan.nodes) * plan.config.data.train
            weighted = plan.config.classifier.weighting == "nodes"
            self.common = first_common(plan, owners, weight if weighted else 1.0)
            news = news_of(self.common)
        self.exchange.sum(receive_change, news)

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """Procedure B: φ after this round, the owners' mean loss, and their hits."""
        exchange, common = self.exchange, self.common
        holding, hides = exchange.answered[receive_change.name], exchange.hidden is not None
        exchange.guard.held = common
        combine = add_up if self.rule is average else partial(ruled, self.rule, common)
        turn = Turn(t, keep, state_of(common))
        asked = {i: turn for i in holding if i not in self.search.left_out}
        total = exchange.sum(local_change_c, asked, combine)
        again = 0
        added: Sequence[OwnerId] = exchange.answered[local_change_c.name]
        if hides and discord(common, total):
            total, added, again = self.search.sum_without(common, turn, total, added)
        if keep:
            self.kept = added
        guide = guide_of(common, total)
        told = total if hides else for_owners(total)
        self.common = next_state(common, told, guide)
        step = replace(news_of(self.common, told, guide), again=again)
        now, late = for_everyone(exchange, self.common, step, holding, added)
        hits = exchange.sum(receive_change, now)
        if late:
            self.catch_up(late)
        return packed(self.common), total.loss / total.count / 2**FIXED, hits

    def catch_up(self, news: Mapping[OwnerId, News]) -> None:
        """Bring owners that missed a hidden sum to the state that the others vouch for."""
        exchange, name = self.exchange, receive_change.name
        here = exchange.answered[name]
        given = {i: vouched(exchange, CLASSIFIER, one) for i, one in news.items()}
        exchange.ask(receive_change, given, Summed, 0)  # they add nothing, so without masks
        exchange.answered[name] = sorted([*here, *exchange.answered[name]])

    def end(self, best: Classifier, t: int, last: int) -> Hits | None:
        """Make sure that all hold the best φ, of round ``t``; owners that kept it reuse it."""
        current = t == last
        has = self.exchange.answered[receive_change.name] if current else self.kept
        if current and len(has) == len(self.exchange.owners):
            return None
        whole = News(t + 1, 0, 0.0, best.phi, {}, NO_CHANGE, {})
        again = News(t + 1, 0, 0.0, {}, {}, NO_CHANGE, {})
        asked = {i: again if i in has else whole for i in self.exchange.owners}
        self.exchange.sum(receive_change, asked)
        return None


def vouched(exchange: Exchange, what: str, news: News) -> News:
    """News with the signatures of owners that computed the same state, if sums are hidden."""
    return replace(news, vouchers=exchange.vouchers(state_name(what, news.t)))


def for_everyone(
    exchange: Exchange,
    common: Common,
    step: News,
    holding: Collection[OwnerId],
    added: Collection[OwnerId],
) -> tuple[dict[OwnerId, News], dict[OwnerId, News]]:
    """The news of a round for each owner: what can be sent now, and what only after that.

    Those that hold the state before it take the step; the others get the whole state. Where
    sums are hidden, who added nothing cannot check the sum, and needs the others' word first.
    """
    whole = everything(common)
    news = {i: step if i in holding else whole for i in exchange.owners}
    late = [i for i in news if exchange.hidden is not None and i not in added]
    return {i: news[i] for i in news if i not in late}, {i: news[i] for i in late}


def for_owners(total: Change) -> Change:
    """The part of a sum that owners need: the rest is in the server's guide."""
    parts = {part: n for part, n in total.parts.items() if not part.startswith(RIGHT)}
    return replace(total, parts=parts)


def news_of(common: Common, total: Change = NO_CHANGE, guide: Parameters | None = None) -> News:
    """What an owner needs to continue if it holds the state of the round before."""
    start = common.t, common.owners, common.weight
    return News(*start, {}, {}, total, guide or {}, state_of(common))


def everything(common: Common) -> News:
    """What an owner needs if it does not: the whole state."""
    start, whole = (common.t, common.owners, common.weight), packed(common)
    return News(*start, whole.phi, whole.moments, NO_CHANGE, {}, state_of(common))


def state_of(common: Common) -> str:
    """The checksum by which owners in hidden sums know that all hold the same."""
    return checksum_of(common) if in_sums(common.config) else ""


def ruled(rule: Rule, common: Common, changes: Sequence[Change]) -> Change:
    """Combine changes by a rule that looks at each one; the result is in the same integers."""
    weights = [change.weight / 2**FIXED for change in changes]
    decoded = [
        {p: decode(n, common.units[p]) * (common.weight / weight) for p, n in one.parts.items()}
        for one, weight in zip(changes, weights, strict=True)
    ]
    chosen, back = rule(decoded, weights), sum(weights) / common.weight
    total = add_up(changes)
    parts = {
        part: as_sum(values * back, common.units[part], common.ring(part, common.t))
        for part, values in chosen.items()
    }
    return replace(total, parts=parts)


@dataclass(slots=True)
class Search:
    """Finds who spoils sums, and remembers how often somebody did."""

    exchange: Exchange
    strikes: Counter[OwnerId] = field(default_factory=Counter)
    searched: int = 0  # rounds so far

    @property
    def left_out(self) -> list[OwnerId]:
        """Owners that are no longer asked."""
        return [i for i, rounds in self.strikes.items() if rounds >= STRIKES]

    def sum_without(
        self, common: Common, turn: Turn, total: Change, added: Sequence[OwnerId]
    ) -> Try:
        """A sum of the round without whoever spoils it; the given one if that is nobody."""
        suspects, size, again = self.in_order(added), self.spare(added), 0
        self.searched += 1
        if self.searched > SEARCHES:
            size = 0
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
