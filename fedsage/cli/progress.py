"""Progress on stderr: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedsage.readable import both_ways, size, traffic

if TYPE_CHECKING:
    from fedsage.runs.events import Event, HistoryLine

OnLine: TypeAlias = Callable[["HistoryLine"], None]
SECONDS_BETWEEN_LINES = 5.0
MUCH = 500e6  # bytes
FEW = 2  # steps of an owner in a round
PATIENCE = 2.0  # seconds before a slow phase is named
SLOW = {"load": "loading", "partition": "cutting the graph", "evaluation": "asking test nodes"}


def carried(line: HistoryLine) -> str:
    """The traffic of this phase so far; nothing where nothing crosses a boundary."""
    return traffic(line.bytes, line.bytes_full or line.bytes) if both_ways(line.bytes) else ""


@contextlib.contextmanager
def rounds(label: str, total: int) -> Iterator[OnLine]:
    """Show ``total`` rounds as they end: loss, validation accuracy, traffic, time left."""
    with bar(label, total) if sys.stderr.isatty() else plain_lines(label, total) as on_line:
        yield on_line


@contextlib.contextmanager
def bar(label: str, total: int) -> Iterator[OnLine]:
    """The live bar, and under it the last round's numbers: a terminal may be narrow."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TimeRemainingColumn(),
    )
    progress, last = Progress(*columns), Text()
    task = progress.add_task(label, total=total)

    def on_line(line: HistoryLine) -> None:
        progress.update(task, advance=1, description=f"{label}, {line.phase}")
        last.plain = state(line)

    with Live(Group(progress, last), console=Console(stderr=True), transient=True):
        yield on_line


@contextlib.contextmanager
def plain_lines(label: str, total: int) -> Iterator[OnLine]:
    """A line now and then, and one for the last round."""
    shown = math.inf
    done = 0

    def on_line(line: HistoryLine) -> None:
        nonlocal shown, done
        done += 1
        now = time.monotonic()
        shown = min(shown, now)  # the first round may have waited for a compiler
        if done == total or now - shown >= SECONDS_BETWEEN_LINES:
            shown = now
            left = line.seconds / done * (total - done)
            where = f"{label}: {done}/{total} rounds, {line.phase}"
            say(f"{where}, {state(line)}, {left:.0f} s left")

    yield on_line


def state(line: HistoryLine) -> str:
    """One round's numbers."""
    judged = "" if line.validation is None else f"validation {line.validation:.3f}"
    words = [f"loss {line.loss:.3f}", judged, carried(line)]
    return ", ".join(word for word in words if word)


def announce_compiling() -> None:
    """Make the compiled training step ready; say so where it is not in the cache yet."""
    from fedsage.kernels.door import warm_up

    words = "preparing the training step (compiled once on this machine, about 20 s) …"
    notice = threading.Timer(4.0, print, [words], {"file": sys.stderr, "flush": True})
    notice.start()
    try:
        warm_up()
    finally:
        notice.cancel()


def ensure_here(dataset: str) -> None:
    """Fetch a dataset that has a name and is not on this machine, showing how it goes."""
    from fedsage.data.datasets import DATASETS, fetch, find

    if dataset in DATASETS and find(dataset) is None:
        with downloads() as on_bytes:
            fetch(dataset, on_bytes)


@contextlib.contextmanager
def downloads() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each file that is fetched; a line each where there is no terminal."""
    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn())
    terminal = sys.stderr.isatty()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def on_bytes(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=total or None)
            if not terminal:
                print(f"fetching {what}", file=sys.stderr, flush=True)
        progress.update(tasks[what], completed=done, total=total or None)

    with progress if terminal else contextlib.nullcontext():
        yield on_bytes


def announce_exchange(num_bytes: float, owners: int) -> None:
    """Say what NeighGen's exchange will carry, where that is much."""
    if num_bytes >= MUCH:
        say(
            f"NeighGen's exchange among {owners} owners will carry about {size(num_bytes)}: it "
            "grows with their square (--set neighgen.partners=3 asks three others a round)"
        )


def announce_small_owners(steps: float | None) -> None:
    """Say that owners with few nodes had better send full messages."""
    if steps is not None and steps < FEW:
        say(
            f"Owners have about {steps:.1f} batches of training nodes a round. With fewer than "
            f"{FEW} accuracy suffers from short messages: --set traffic.how=full"
        )


class Shown:
    """Shows what happens in a run: its rounds, and what takes a while before and after."""

    def __init__(self, progress: OnLine, owners: int) -> None:
        self.progress, self.owners = progress, owners
        self.timers: dict[str, threading.Timer] = {}

    def __call__(self, event: Event) -> None:
        """Something happened."""
        if event.line is not None:
            self.progress(event.line)
        elif event.what == "ready":
            if event.kernel == "fused":
                announce_compiling()
            announce_exchange(event.carries, self.owners)
            announce_small_owners(event.steps)
        elif event.what == "ends":
            if timer := self.timers.pop(event.phase, None):
                timer.cancel()
        elif words := SLOW.get(event.phase):
            timer = threading.Timer(PATIENCE, say, [f"{words} …"])
            timer.daemon = True
            self.timers[event.phase] = timer
            timer.start()


def say(words: str) -> None:
    """A line on stderr."""
    print(words, file=sys.stderr, flush=True)
