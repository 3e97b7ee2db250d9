"""The finding of an attack, and how attacks are registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedsage.registry import Registry

if TYPE_CHECKING:
    from fedsage.audit.case import Case

Verdict: TypeAlias = Literal["holds", "leaks", "not run"]
AUC_AT_CHANCE = 0.55  # up to here, a guess is no better than chance


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit."""

    name: str
    attacker: str
    sees: str
    figure: str
    value: float | None
    chance: float | None  # the figure without any information, or of an honest run
    verdict: Verdict
    sum: float | None = None  # the same figure on the sum over owners
    note: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What all findings of an attack have in common."""

    name: str
    attacker: str
    sees: str
    figure: str

    def found(
        self,
        value: float,
        chance: float,
        leaks: bool,
        of_sum: float | None = None,
        note: str = "",
    ) -> Finding:
        """A finding of an attack that was tried."""
        verdict: Verdict = "leaks" if leaks else "holds"
        return self.finding(rounded(value), rounded(chance), verdict, of_sum, note)

    def auc(
        self, value: float, of_sum: float | None = None, note: str = "", error: float = 0.0
    ) -> Finding:
        """A finding measured by how often the attack tells one kind from the other.

        ``error`` is the standard error of that.
        """
        leaks = value > max(AUC_AT_CHANCE, 0.5 + 2 * error)
        return self.found(value, 0.5, leaks, of_sum, note)

    def not_run(self, why: str) -> Finding:
        """A finding of an attack that could not be tried."""
        return self.finding(None, None, "not run", None, why)

    def finding(
        self,
        value: float | None,
        chance: float | None,
        verdict: Verdict,
        of_sum: float | None,
        note: str,
    ) -> Finding:
        """A finding with the attack's own description."""
        mean = None if of_sum is None else rounded(of_sum)
        return Finding(
            self.name, self.attacker, self.sees, self.figure, value, chance, verdict, mean, note
        )


def rounded(value: float) -> float:
    """Only the significant digits."""
    return round(float(value), 4)


Attack: TypeAlias = "Callable[[Case], Finding]"
ATTACKS: Registry[Attack] = Registry("attack", "attack", "fedsage.audit.attacks")
attack = ATTACKS  # the decorator: @attack("row-span")
