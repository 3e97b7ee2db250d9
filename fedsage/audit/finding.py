"""What an attack found, and how attacks are registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedsage.registry import Registry

if TYPE_CHECKING:
    from fedsage.audit.case import Case

Verdict: TypeAlias = Literal["holds", "leaks", "not run"]
AUC_AT_CHANCE = 0.55  # up to here, a guess is no better than a coin


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit."""

    name: str
    attacker: str
    sees: str
    figure: str
    value: float | None
    chance: float | None  # what who sees nothing gets, or what an honest run has
    verdict: Verdict
    sum: float | None = None  # the same figure on the sum over owners
    note: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What every finding of an attack has in common."""

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
        """It was tried."""
        verdict: Verdict = "leaks" if leaks else "holds"
        return self.finding(rounded(value), rounded(chance), verdict, of_sum, note)

    def auc(
        self, value: float, of_sum: float | None = None, note: str = "", error: float = 0.0
    ) -> Finding:
        """It was tried, and is judged by how often it tells one from the other.

        ``error`` is the standard error of that.
        """
        leaks = value > max(AUC_AT_CHANCE, 0.5 + 2 * error)
        return self.found(value, 0.5, leaks, of_sum, note)

    def not_run(self, why: str) -> Finding:
        """It could not be tried."""
        return self.finding(None, None, "not run", None, why)

    def finding(
        self,
        value: float | None,
        chance: float | None,
        verdict: Verdict,
        of_sum: float | None,
        note: str,
    ) -> Finding:
        """With what this attack says of itself."""
        mean = None if of_sum is None else rounded(of_sum)
        return Finding(
            self.name, self.attacker, self.sees, self.figure, value, chance, verdict, mean, note
        )


def rounded(value: float) -> float:
    """As many digits as mean anything."""
    return round(float(value), 4)


Attack: TypeAlias = "Callable[[Case], Finding]"
ATTACKS: Registry[Attack] = Registry("attack", "attack", "fedsage.audit.attacks")
attack = ATTACKS  # the decorator: @attack("row-span")
