"""How an owner follows φ: what it receives after a round, and what it does with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedsage.errors import ProtocolError
from fedsage.models.optimizer import load_moments, moments_of
from fedsage.models.parameters import Parameters
from fedsage.protocol.checking import check_guide, check_sum, proof_of_change
from fedsage.protocol.common import Change, Common
from fedsage.protocol.holding import first_common, unpacked
from fedsage.protocol.messages import Classifier, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import in_sums


@message
class Turn:
    """S → D_i: train for round ``t``; ``keep`` means that the φ you hold is the best so far."""

    t: int
    keep: bool


@message
class News:
    """Procedure B, S → every D_i: what it takes to reach the common state after ``t`` rounds.

    At the start, the state follows from the plan. Later it takes the sum of changes and the
    server's guide, or the whole state after an absence. Without any, the kept φ is reused.
    """

    t: int
    owners: int
    weight: float
    phi: Parameters
    memory: Parameters
    total: Change
    guide: Parameters


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
    common: Common | None = None
    kept: tuple[int, Parameters, bool] = (-1, {}, False)  # when φ was best, and that φ
    proved: tuple[int, bytes] = (-1, b"")  # the last round it added to, and with which secret
    checked: bool = False  # whether φ follows from sums that this owner could check

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
            common = self.held(news.t - 1)
            self.checked = self.follows(common, news)
            common = common.after(news.total, news.guide)
        elif news.memory:
            common = unpacked(plan.config, Classifier(news.phi, news.memory))
        elif news.t == 0:
            common = first_common(plan, news.owners, news.weight)
        else:  # the end: only φ, for queries
            phi, self.checked = (news.phi, False) if news.phi else self.recalled(news.t, before)
            self.owner.take_over(phi, {})
            return
        self.common = common
        self.owner.take_over(common.phi, common.moments)

    def with_proof(self, common: Common, change: Change) -> Change:
        """A change with a proof that lets owners check the sum, if they share a secret."""
        self.proved = common.t, self.owner.secret()
        if not in_sums(self.owner.config):
            return change
        return replace(change, proof=proof_of_change(self.owner.secret(), common, change))

    def follows(self, common: Common, news: News) -> bool:
        """Whether this owner knows that φ follows from sums; refuses what does not."""
        t, secret = self.proved
        if t != common.t:
            return False  # it added nothing to this sum
        if not in_sums(self.owner.config):
            return True  # the server sees every reply: owners cannot check it
        check_sum(secret, common, news.total)
        check_guide(common, news.total, news.guide)
        return True

    def recalled(self, t: int, checked: bool) -> tuple[Parameters, bool]:
        """The φ that it holds or kept after ``t`` rounds, and whether it could check it."""
        if self.common is not None and self.common.t == t:
            return self.common.phi, checked
        after, phi, known = self.kept
        if after != t:
            raise ProtocolError(f"it did not keep the classifier of round {t - 1}")
        return phi, known

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
