"""The server's side of training: asking for rounds and sending the results to owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from fedsage.models.parameters import Parameters
from fedsage.privacy.sums import as_sum, decode
from fedsage.protocol.changes.accord import discord
from fedsage.protocol.changes.follow import CLASSIFIER, News, Turn, state_name
from fedsage.protocol.changes.owner import local_change_c, receive_change
from fedsage.protocol.changes.search import Search
from fedsage.protocol.changes.start import checksum_of, first_common, packed, unpacked
from fedsage.protocol.changes.state import FIXED, NO_CHANGE, RIGHT, Change, Common
from fedsage.protocol.exchange import Exchange, add_up
from fedsage.protocol.messages import Classifier, Hits, OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Summed, in_full, in_sums
from fedsage.protocol.server import Rule, average, server_execution_for_c


def averaging_of(exchange: Exchange, rule: Rule) -> ByModels | ByChanges:
    """The way of averaging that the run's settings ask for."""
    full = in_full(exchange.plan.config)
    return ByModels(exchange, rule) if full else ByChanges(exchange, rule)


class ByModels:
    """The server's side of training with full messages: φ_i and moments as they are."""

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        self.exchange, self.rule = exchange, rule

    def start(self, classifier: Classifier) -> None:
        """Send the classifier to all owners."""
        self.exchange.sum(DataOwner.receive_classifier, classifier)

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """Procedure B."""
        return server_execution_for_c(self.exchange, t, self.rule)

    def end(self, best: Classifier, t: int, last: int) -> Hits | None:
        """Make sure that all owners hold the best φ, that of round ``t``.

        Returns hits on validation nodes if owners answer otherwise from here on.
        """
        holding = self.exchange.answered[DataOwner.receive_classifier.name]
        if t != last or len(holding) < len(self.exchange.owners):
            self.start(best)
        return None


class ByChanges:
    """The server's side of training by changes: add them up, take the step, send the sum."""

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        self.exchange, self.rule = exchange, rule
        self.kept: Sequence[OwnerId] = ()  # owners that kept the best φ so far
        self.search = Search(exchange)

    def start(self, classifier: Classifier) -> None:
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
        guide = common.guide(total)
        told = total if hides else for_owners(total)
        self.common = common.after(told, guide)
        step = replace(news_of(self.common, told, guide), again=again)
        whole = everything(self.common)
        news = {i: step if i in holding else whole for i in exchange.owners}
        if hides:  # who added nothing cannot check the sum, and needs the others' word
            news = {i: step for i in added}
        hits = exchange.sum(receive_change, news)
        if late := [i for i in exchange.owners if i not in news]:
            self.catch_up({i: step if i in holding else whole for i in late})
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
