"""What a run is doing right now, in a file that the server's main process reads."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NOW = "now.json"
EVERY = 0.2  # seconds between two looks at whether the file must be written again


class Now:
    """Kept by the server's job process. Times are of this machine's steady clock.

    Args:
        file: Where it is written.
        run: The name of the run.
        job: NVFlare's name of it.
        owners: Names of all owners.
    """

    def __init__(self, file: Path, run: str, job: str, owners: Sequence[str]) -> None:
        self.file, self.lock, self.changed = file, threading.Lock(), True
        self.facts: dict[str, Any] = {
            "run": run, "job": job, "process": os.getpid(), "phase": "joining",
            "round": 0, "rounds": None, "exchange": None, "asked": None, "deadline": None,
            "members": list(owners), "expected": [], "answers": {}, "missing": {},
        }  # fmt: skip

    def start(self) -> Now:
        """Write the file from now on whenever something has changed."""

        def write_on() -> None:
            while True:
                self.write()
                time.sleep(EVERY)

        threading.Thread(target=write_on, daemon=True).start()
        return self

    def write(self) -> None:
        """Write the file if something has changed."""
        with self.lock:
            if not self.changed:
                return
            self.changed = False
            text = json.dumps(self.facts)
        partial = self.file.with_name(f".{self.file.name}")
        try:
            partial.write_text(text)
            os.replace(partial, self.file)
        except OSError:  # a full disk must not end a run; checkpoints will say it
            self.tell()  # try again

    def tell(self, **facts: Any) -> None:
        """Change facts."""
        with self.lock:
            self.facts.update(facts)
            self.changed = True

    def asks(self, exchange: str, owners: Iterable[str], deadline: float) -> None:
        """Owners are asked, and have so many seconds."""
        now = time.monotonic()
        self.tell(exchange=exchange, asked=now, deadline=now + deadline, expected=list(owners))

    def waits(self, owners: Iterable[str], seconds: float) -> None:
        """The run can only go on when these owners are back, and waits so long for them."""
        self.asks("waiting", owners, seconds)
        for name in owners:
            self.missed(name)

    def answered(self, owner: str) -> None:
        """An owner has answered."""
        with self.lock:
            self.facts["answers"][owner] = time.monotonic()
            self.facts["missing"].pop(owner, None)
            self.changed = True

    def missed(self, owner: str) -> None:
        """An owner did not answer in time; it has been missing since it was asked."""
        with self.lock:
            self.facts["missing"].setdefault(owner, self.facts["asked"] or time.monotonic())
            self.changed = True


def read_now(file: Path) -> dict[str, Any] | None:
    """What a job wrote last; None if there is nothing to read."""
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return None
