"""Progress of ``fedsage.run``: a line in notebooks, what the command line shows elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

from fedsage.runs.events import Event, Observer, ignore_event
from fedsage.runs.result import state_of

SECONDS_BETWEEN = 0.2  # two updates in a notebook


@contextmanager
def shown(progress: bool | None, label: str, total: int, owners: int) -> Iterator[Observer]:
    """An observer that shows the rounds of a run, if somebody wants to see them.

    Args:
        progress: None shows them where a person types: in notebooks and at a prompt.
        label: What is being run.
        total: How many rounds there are at most.
        owners: M.
    """
    wanted = hasattr(sys, "ps1") if progress is None else progress
    if not wanted:
        yield ignore_event
    elif in_notebook():
        with InNotebook(label, total) as observer:
            yield observer
    else:
        lines: Any = import_module("fedsage.cli.progress")  # a layer above, so by its name
        with lines.rounds(label, total) as on_line:
            yield lines.Shown(on_line, owners)


def in_notebook() -> bool:
    """Whether this code runs in a notebook's kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class InNotebook:
    """One line under a notebook's cell, written anew as rounds end."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0
        self.display: Any = import_module("IPython.display")
        self.handle: Any = None
        self.written = 0.0
        self.last = "starting"

    def __enter__(self) -> InNotebook:
        """The line appears."""
        self.handle = self.display.display(self.line(), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        """The line keeps the last round's numbers."""
        self.handle.update(self.line())

    def __call__(self, event: Event) -> None:
        """Something happened; of that, rounds are shown."""
        if event.line is None:
            return
        self.done += 1
        self.last = f"{event.phase}, {state_of(event.line)}"
        if time.monotonic() - self.written >= SECONDS_BETWEEN:
            self.written = time.monotonic()
            self.handle.update(self.line())

    def line(self) -> Any:
        """How far it has come, as HTML."""
        words = f"{self.label}: {self.done}/{self.total} rounds, {self.last}"
        bar = f'<progress value="{self.done}" max="{self.total}"></progress>'
        return self.display.HTML(f"{bar} {escape(words)}")
