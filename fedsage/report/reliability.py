"""Section on probabilities: whether answers are as often right as they are sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from fedsage.report.bars import Series, bar_chart, bar_sheet
from fedsage.report.blocks import Figure, Grid, Section
from fedsage.report.marks import bar_key, method_color
from fedsage.report.read import Groups, Run


def reliability(groups: Groups) -> Section | None:
    """A reliability diagram for each method, with its expected calibration error."""
    figures = [
        figure
        for k, (method, runs) in enumerate(groups.items())
        if (figure := diagram(method, method_color(k), runs)) is not None
    ]
    note = (
        "Test nodes at their owners, by the probability of the answer. Where the bars of a "
        "step are equally high, answers are as often right as they are sure."
    )
    return Section("Probabilities", note, [Grid(figures)]) if figures else None


def diagram(method: str, color: str, runs: Sequence[Run]) -> Figure | None:
    """Probability and share right, in steps that have any answers; all seeds together."""
    found = [run.result for run in runs if run.result.get("reliability")]
    if not found:
        return None
    steps = list(zip(*(one["reliability"] for one in found), strict=True))
    names, sure, right = [], [], []
    for k, parts in enumerate(steps):
        known = [one for one in parts if one["count"]]
        if known:
            names.append(f"{k / len(steps):.2f}–{(k + 1) / len(steps):.2f}")
            sure.append(pooled(known, "probability"))
            right.append(pooled(known, "right"))
    if not names:
        return None
    series = [Series("mean probability", "truth", sure), Series("share right", color, right)]
    return Figure(
        f"How sure {method} is, and how often right",
        bar_chart(names, series, "share of answers"),
        words_about(found),
        bar_sheet("probability", names, series),
        [bar_key(one.name, one.color) for one in series],
    )


def pooled(parts: Sequence[Mapping[str, Any]], key: str) -> float:
    """The mean over all answers."""
    total = sum(one["count"] for one in parts)
    return float(sum(one["count"] * one[key] for one in parts) / total)


def words_about(found: Sequence[Mapping[str, Any]]) -> str:
    """The expected calibration error, beside that of chance, and the calibration."""
    errors = [one["calibration_error"] for one in found if one["calibration_error"] is not None]
    warmth, slope = (
        mean(one.get(key, 0.0) for one in found) for key in ("temperature", "slope")
    )
    fitted = f"Temperature {warmth:.2f}, slope {slope:+.2f}, fitted on validation nodes."
    if not errors:
        return fitted
    chance = [one.get("calibration_error_by_chance") for one in found]
    known = [value for value in chance if value is not None]
    beside = (
        f" Perfect probabilities would show {mean(known):.3f} on so few nodes." if known else ""
    )
    return (
        f"Expected calibration error {mean(errors):.3f}: on average, the probability of an "
        f"answer is that far from the share of such answers that are right.{beside} {fitted}"
    )
