"""How an owner follows φ: what it receives after a round, and what it does with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedsage.errors import PrivacyError, ProtocolError
from fedsage.models.optimizer import load_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.protocol.changes.check import check_guide, check_sum, discord, proof_of_change
from fedsage.protocol.changes.state import (
    NO_CHANGE,
    Change,
    Common,
    checksum_of,
    first_common,
    unpacked,
)
from fedsage.protocol.changes.step import next_state
from fedsage.protocol.hidden_sums.messages import Voucher
from fedsage.protocol.messages import Classifier, message
from fedsage.protocol.owner import DataOwner

MOST_TRIED = 12  # rounds of a run that an owner takes part in more than once
CLASSIFIER = "the classifier"  # what it is that owners follow, as they call it


def state_name(what: str, t: int) -> str:
    """What owners call the state after ``t`` rounds."""
    return f"{what} after {t} rounds"


@message
class Turn:
    """S → D_i: train for round ``t``; ``keep`` means that the φ you hold is the best so far."""

    t: int
    keep: bool
    state: str = ""  # where sums are hidden: the checksum of the state to start from
    again: int = 0  # the how-manieth try of the round, if its sum cannot be right
    cause: Change = NO_CHANGE  # then: that sum


@message
class News:
    """Procedure B, S → every D_i: what it takes to reach the common state after ``t`` rounds.

    At the start, the state follows from the plan. Later it takes the sum of changes and the
    server's guide, or the whole state after an absence. Without any, the kept φ is reused.
    Where sums are hidden, it names the checksum of the state, and others vouch for a state that
    an owner cannot check.
    """

    t: int
    owners: int
    weight: float
    phi: Parameters
    memory: Parameters
    total: Change
    guide: Parameters
    state: str = ""
    vouchers: dict[str, Voucher] = field(default_factory=dict)
    again: int = 0  # which try of the round the sum is of


def turn_of(news: News) -> Turn:
    """The part of news that all owners in a sum must have been sent alike."""
    return Turn(news.t, False, news.state)


@dataclass(slots=True)
class Trust:
    """Why an owner believes that a state follows from sums: it checked them, or others did.

    Args:
        owner: Who this is.
        what: What the states are of, in words.
    """

    owner: DataOwner
    what: str
    proved: int = -1  # the last round it added to
    secrets: dict[int, bytes] = field(default_factory=dict)  # by try: what proved it

    def with_proof(self, common: Common, change: Change, again: int = 0) -> Change:
        """A change with a proof that lets owners check the sum, if they share a secret."""
        masks = self.owner.sum_masks
        if self.proved != common.t:
            self.proved, self.secrets = common.t, {}
        self.secrets[again] = masks.common if masks else b""
        if masks is None:
            return change
        return replace(
            change, proof=proof_of_change(masks.common, self.what, common, change, again)
        )

    def check_cause(self, common: Common, turn: Turn) -> None:
        """Refuse another try of a round whose sum was as usual: two sums tell more than one."""
        if self.proved != common.t or 0 not in self.secrets or turn.again > 2 * common.owners:
            raise PrivacyError(
                f"Round {common.t} was asked for again (try {turn.again}), but this owner took "
                "no part in the sum that is said to be the cause. Nothing was sent."
            )
        masks = self.owner.sum_masks
        before = masks.remembered.tried_again if masks else set()
        if len([one for one in before if not one.endswith(f" {common.t}")]) >= MOST_TRIED:
            raise PrivacyError(
                f"Round {common.t} was asked for again, and so were {MOST_TRIED} others. An "
                "owner that spoils sums is left out after a few. Nothing was sent."
            )
        check_sum(self.secrets[0], self.what, common, turn.cause)
        if discord(common, turn.cause) is None:
            raise PrivacyError(
                f"Round {common.t} was asked for again, but its sum was as usual. Nothing was "
                "sent."
            )

    def check_first(self) -> None:
        """Refuse to begin again: every start would give more sums and hits of the same data."""
        if self.proved >= 0:
            raise PrivacyError(f"Training of {self.what} was to begin again. Nothing was sent.")

    def start(self, common: Common, state: str) -> None:
        """Refuse to train from another state than the server says that all hold."""
        if self.owner.sum_masks is not None and state != checksum_of(common):
            name = state_name(self.what, common.t)
            raise PrivacyError(
                f"The server names another state than {name}, as this owner holds it. Nothing "
                "was sent."
            )

    def step(self, common: Common, news: News) -> tuple[Common, bool]:
        """The state after a sum, and whether this owner could check it."""
        added = self.proved == common.t and news.again in self.secrets
        masks = self.owner.sum_masks
        if masks is None:  # in the open, nobody can check what the server says
            return next_state(common, news.total, news.guide), added
        if added:
            check_sum(self.secrets[news.again], self.what, common, news.total, news.again)
            check_guide(common, news.total, news.guide)
        after = next_state(common, news.total, news.guide)
        if not added:
            self.accept(after, news)
        self.start(after, news.state)
        masks.remembered.know(state_name(self.what, after.t), checksum_of(after))
        return after, added

    def accept(self, common: Common, news: News) -> None:
        """Refuse a state that this owner cannot check and that nobody vouches for."""
        if self.owner.sum_masks is not None:
            name = state_name(self.what, common.t)
            self.owner.sum_masks.accept(name, checksum_of(common), news.vouchers)


@dataclass(frozen=True, slots=True)
class FollowerState:
    """What a round leaves with an owner alone."""

    feedback: Parameters
    moments: Parameters  # if they are not shared


@dataclass(slots=True)
class Follower:
    """How an owner follows φ: the common state, and what it could not send so far."""

    owner: DataOwner
    feedback: Parameters = field(default_factory=dict)
    tries: dict[int, Parameters] = field(default_factory=dict)  # feedback after each
    before: Parameters = field(default_factory=dict)  # the feedback at the start of the round
    common: Common | None = None
    kept: tuple[int, Parameters, bool] = (-1, {}, False)  # when φ was best, and that φ
    checked: bool = False  # whether φ follows from sums that this owner could check
    scored: int = 0  # after how many rounds φ was last scored
    trust: Trust = field(init=False)

    def __post_init__(self) -> None:
        self.trust = Trust(self.owner, CLASSIFIER)

    def state(self) -> FollowerState:
        """What the server cannot give back after a restart."""
        own = self.owner.config.classifier.moments == "own"
        moments = moments_of(self.owner.optimizer, self.owner.model) if own else {}
        return FollowerState(self.feedback, moments)

    def restore(self, state: FollowerState) -> None:
        """Continue from that state."""
        self.feedback = dict(state.feedback)
        if state.moments:
            load_moments(self.owner.optimizer, self.owner.model, state.moments)

    def take(self, news: News) -> None:
        """Bring this owner to the state that the others hold."""
        plan = self.owner.plan
        before, self.checked = self.checked, False
        if news.total.count:
            self.feedback = self.tries.get(news.again, self.feedback)
            common, self.checked = self.trust.step(self.held(news.t - 1), news)
        elif news.memory:
            common = unpacked(plan.config, Classifier(news.phi, news.memory))
            self.trust.accept(common, news)
        elif news.t == 0:
            self.trust.check_first()
            common = first_common(plan, news.owners, news.weight)
        else:  # the end: only φ, for queries
            phi, self.checked = (news.phi, False) if news.phi else self.recalled(news.t, before)
            self.common = None  # from this φ, nobody trains
            self.owner.take_over(phi, {})
            return
        self.common = common
        self.owner.take_over(common.phi, common.moments)

    def recalled(self, t: int, checked: bool) -> tuple[Parameters, bool]:
        """The φ that it holds or kept after ``t`` rounds, and whether it could check it."""
        if self.common is not None and self.common.t == t:
            return self.common.phi, checked
        after, phi, known = self.kept
        if after != t:
            raise ProtocolError(f"it did not keep the classifier of round {t - 1}")
        return phi, known

    def begin(self, common: Common, turn: Turn) -> None:
        """Start a round, or another try of it, from the state that all hold."""
        self.trust.start(common, turn.state)
        if turn.keep:
            self.keep(common)
        if not turn.again:
            self.before, self.tries = dict(self.feedback), {}
            return
        self.trust.check_cause(common, turn)
        self.feedback = dict(self.before)
        self.owner.take_over(common.phi, common.moments)

    def keep(self, common: Common) -> None:
        """Keep this φ: it is the best so far."""
        self.kept = common.t, common.phi, self.checked

    def held(self, t: int) -> Common:
        """The common state that this owner holds at the start of round ``t``."""
        if self.common is None or self.common.t != t:
            raise ProtocolError(f"it does not hold the classifier that round {t} starts from")
        return self.common


def follower(owner: DataOwner) -> Follower:
    """The follower of this owner."""
    return owner.part("changes", lambda: Follower(owner))
