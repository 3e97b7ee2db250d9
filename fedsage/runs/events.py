"""Events of a run: a phase begins or ends, a round is over; and a way to stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fedsage.models.classifier import NodeClassifier

PHASES = ("load", "partition", "mending", "training", "evaluation")


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One round, as a line of ``history.jsonl``."""

    phase: str
    round: int
    loss: float | None  # none in a private run, which does not ask for it
    validation: float | None  # the same; none yet while graphs are mended
    bytes: dict[str, int]  # up and down, of this phase so far
    seconds: float  # since training began
    owner: int | None = None  # whose local model, where every owner trains its own
    terms: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several
    picked: float | None = None  # share of nodes ever nearest, while owners exchange gradients
    without: list[dict[str, Any]] = field(default_factory=list)  # who was left out, and why
    bytes_full: dict[str, int] = field(default_factory=dict)  # had all messages been full


def no_model() -> NodeClassifier | None:
    """There is no model while graphs are being mended."""
    return None


def too_late() -> None:
    """A round of before a restart cannot stop anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A phase begins or ends, training is ready to begin, or a round is over.

    A warning is about the data, before training begins. A run waits for people.
    Callbacks of :func:`fedsage.run` are called after each round.
    """

    what: Literal["begins", "ends", "warns", "waits", "ready", "round"]
    phase: str
    line: HistoryLine | None = None  # of a round
    kernel: str = ""  # when all is ready: the path that training takes
    carries: int = 0  # when all is ready: about how many bytes mending will exchange
    steps: float | None = None  # when all is ready: of an owner in a round, sent as changes
    words: str = ""  # of a warning, or for whom the run waits
    _model: Callable[[], NodeClassifier | None] = no_model
    _stop: Callable[[], None] = too_late

    @property
    def history(self) -> HistoryLine:
        """All numbers of the round, as in ``history.jsonl``."""
        assert self.line is not None, "only rounds have numbers"
        return self.line

    @property
    def round(self) -> int:
        """The number of the round within its phase, from 0."""
        return self.history.round

    @property
    def loss(self) -> float | None:
        """The mean loss over owners; None in a private run."""
        return self.history.loss

    @property
    def validation(self) -> float | None:
        """The shared classifier's accuracy on all validation nodes, if owners are asked."""
        return self.history.validation

    @property
    def model(self) -> NodeClassifier | None:
        """The shared classifier after this round; None while mending."""
        return self._model()

    def stop(self) -> None:
        """End this phase after this round. What was trained so far is kept."""
        self._stop()


Observer: TypeAlias = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Do nothing."""


@dataclass(slots=True)
class Stopwatch:
    """Measures the seconds of each phase; paused time counts in none.

    Where a phase runs inside another one, its time counts in the inner one only.
    """

    observe: Observer = ignore_event
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    started: float = field(default_factory=time.perf_counter)
    started_cpu: float = field(default_factory=time.process_time)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to ``name``."""
        start, cpu = time.perf_counter(), time.process_time()
        inside, inside_cpu = sum(self.seconds.values()), sum(self.cpu.values())
        self.observe(Event("begins", name))
        try:
            yield
        finally:
            self.observe(Event("ends", name))
        inside = sum(self.seconds.values()) - inside
        inside_cpu = sum(self.cpu.values()) - inside_cpu
        self.seconds[name] += time.perf_counter() - start - inside
        self.cpu[name] += time.process_time() - cpu - inside_cpu

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the time spent inside out of the totals."""
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.started += time.perf_counter() - start
        self.started_cpu += time.process_time() - cpu
