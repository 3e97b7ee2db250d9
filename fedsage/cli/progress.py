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

from fedsage.readable import both_ways, counted, size, traffic

if TYPE_CHECKING:
    from fedsage.runs.events import Event, HistoryLine

OnLine: TypeAlias = Callable[["HistoryLine"], None]
SECONDS_BETWEEN_LINES = 5.0
MUCH = 500e6  # bytes
FEW = 2  # steps of an owner in a round
PATIENCE = 2.0  # seconds after which a phase is slow enough to be named
SLOW = {"load": "loading", "partition": "cutting the graph", "evaluation": "testing"}


def carried(line: HistoryLine) -> str:
    """The traffic of this phase so far; nothing where nothing leaves an owner."""
    if not both_ways(line.bytes):
        return ""
    return f"traffic {traffic(line.bytes, line.bytes_full or line.bytes)}"


@contextlib.contextmanager
def rounds(label: str, total: int) -> Iterator[OnLine]:
    """Show ``total`` rounds as they end: loss, validation accuracy, traffic, time left."""
    live = sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal
    with bar(label, total) if live else plain_lines(label, total) as on_line:
        yield on_line


@contextlib.contextmanager
def bar(label: str, total: int) -> Iterator[OnLine]:
    """The live bar, with what is going on above it and the last round's numbers below.

    Three lines rather than one, so that nothing is cut on a terminal of 60 columns.
    """
    columns = (
        BarColumn(bar_width=None),
        TextColumn(f"{{task.completed}}/{counted(total, 'round')}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    progress, above, last = Progress(*columns, expand=True), Text(label), Text()
    task = progress.add_task(label, total=total)

    def on_line(line: HistoryLine) -> None:
        progress.update(task, advance=1)
        above.plain = f"{label}: {line.phase}"
        last.plain = "\n".join(numbers(line))

    with Live(Group(above, progress, last), console=Console(stderr=True), transient=True):
        yield on_line


@contextlib.contextmanager
def plain_lines(label: str, total: int) -> Iterator[OnLine]:
    """A line now and then, and one for the last round."""
    shown = math.inf
    done = 0
    spent: dict[int | None, float] = {}  # where owners train one after the other, by owner

    def on_line(line: HistoryLine) -> None:
        nonlocal shown, done
        done += 1
        spent[line.owner] = line.seconds
        now = time.monotonic()
        shown = min(shown, now)  # the first round may have waited for a compiler
        if done == total or now - shown >= SECONDS_BETWEEN_LINES:
            shown = now
            left = sum(spent.values()) / done * (total - done)
            where = f"{label}: {done}/{counted(total, 'round')}, {line.phase}"
            say(f"{where}, {', '.join(numbers(line))}, {left:.0f} s left")

    yield on_line


def numbers(line: HistoryLine) -> list[str]:
    """One round's loss, accuracy on validation nodes and traffic, as far as there are any."""
    known = {"loss": line.loss, "validation": line.validation}
    words = [f"{name} {value:.3f}" for name, value in known.items() if value is not None]
    return list(filter(None, [", ".join(words), carried(line)]))


def announce_compiling() -> None:
    """Load the compiled training step; say so if it has to be compiled first."""
    from fedsage.kernels.door import warm_up

    words = "compiling the training step, once on this machine: about 20 s …"
    notice = threading.Timer(4.0, print, [words], {"file": sys.stderr, "flush": True})
    notice.start()
    try:
        warm_up()
    finally:
        notice.cancel()


def ensure_here(dataset: str) -> None:
    """Download a named dataset that is not on this machine yet, with a progress bar."""
    from fedsage.data.datasets import DATASETS, fetch, find

    if dataset in DATASETS and find(dataset) is None:
        with downloads() as on_bytes:
            fetch(dataset, on_bytes)


@contextlib.contextmanager
def downloads() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each download; a line each where there is no terminal."""
    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn())
    terminal = sys.stderr.isatty()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def on_bytes(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=total or None)
            if not terminal:
                print(f"downloading {what}", file=sys.stderr, flush=True)
        progress.update(tasks[what], completed=done, total=total or None)

    with progress if terminal else contextlib.nullcontext():
        yield on_bytes


def announce_exchange(num_bytes: float, owners: int) -> None:
    """Say how much NeighGen's exchange will send, where that is a lot."""
    if num_bytes >= MUCH:
        say(
            f"NeighGen will exchange about {size(num_bytes)} among {counted(owners, 'owner')}, "
            "growing with the square of their number. To ask only three other owners in each "
            "round: --set neighgen.partners=3"
        )


def announce_small_owners(steps: float | None) -> None:
    """Advise full messages where owners have few nodes."""
    if steps is not None and steps < FEW:
        say(
            f"Owners have about {steps:.1f} batches of training nodes in each round. Below "
            f"{FEW}, short messages cost accuracy. To send full ones: --set traffic.how=full"
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
        elif event.what == "warns":
            say(f"Warning: {event.words}")
        elif event.what == "ready":
            if event.kernel == "fused":
                announce_compiling()
            announce_exchange(event.carries, self.owners)
            announce_small_owners(event.steps)
            if event.words:
                say(event.words)
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
