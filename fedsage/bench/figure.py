"""Figure: one measurement, and functions to take it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from fedsage.data.datasets import DATASETS, find
from fedsage.data.load import load
from fedsage.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement, and the baseline it is compared with."""

    name: str
    value: float
    unit: str
    baseline: float | None = None  # in the same unit, timed in the same run
    ratio: float | None = None  # baseline ÷ value: above 1 beats the baseline
    spread: tuple[float, float] | None = None  # lowest and highest ratio seen
    at_most: float | None = None  # what the value should not exceed
    at_least: float | None = None  # what the ratio should reach
    among: tuple[float, float] | None = None  # lowest and highest value measured
    repeats: int = 1

    @property
    def wanted(self) -> str:
        """The target for the figure, and whether it is met."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}: {'yes' if self.met else 'NO'}"
        return f"≥ {self.at_least:g}×: {'yes' if self.met else 'NO'}" if self.at_least else ""

    @property
    def met(self) -> bool:
        """Whether the figure meets its target; true if it has none."""
        if self.at_most is not None and self.value > self.at_most:
            return False
        return self.at_least is None or (self.ratio or 0.0) >= self.at_least


def figure_of(
    name: str,
    values: Sequence[float],
    unit: str,
    baselines: Sequence[float] | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """The median of repeated measurements, with its spread.

    Each value is compared with the baseline that was measured next to it.
    """
    ratios = [b / v for b, v in zip(baselines or [], values, strict=baselines is not None) if v]
    return Figure(
        name=name,
        value=median(values),
        unit=unit,
        baseline=median(baselines) if baselines else None,
        ratio=median(ratios) if ratios else None,
        spread=(min(ratios), max(ratios)) if ratios else None,
        at_most=at_most,
        at_least=at_least,
        among=(min(values), max(values)),
        repeats=len(values),
    )


def graphs() -> Iterator[tuple[str, Graph]]:
    """The datasets on this machine, or the synthetic graph if there are none."""
    here = [name for name in DATASETS if find(name)]
    for name in here or ["synthetic"]:
        yield name, load(name)


def seconds(work: Callable[..., object], *arguments: object, **named: object) -> float:
    """How long ``work`` takes."""
    start = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - start
