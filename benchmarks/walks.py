"""How many files of the package one run enters, and one message between machines.

    python benchmarks/walks.py

A file is entered when a function of it is called, by whichever thread; what runs when it is
imported does not count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import fedsage as fs
import fedsage.cli.main
from fedsage.config import load_config
from fedsage.runs.execute import run_config

PACKAGE = Path(fs.__file__).parent
SMALL = {
    "data": {"dataset": "synthetic"},
    "synthetic": {"nodes": 400, "features": 80},
    "classifier": {"rounds_c": 3},
}


@contextmanager
def entered() -> Iterator[set[str]]:
    """The files whose functions are called inside."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            path = Path(code.co_filename)
            if PACKAGE in path.parents:
                found.add(str(path.relative_to(PACKAGE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def files_of(call: Callable[[], object]) -> list[str]:
    """The files that a call enters once everything is imported."""
    call()
    with entered() as found:
        call()
    return sorted(found)


def main() -> None:
    """Print both walks."""
    config = load_config(SMALL)
    run = files_of(lambda: run_config(config))
    print(f"One run (FedSage+ in process) enters {len(run)} files:")
    print("  " + "\n  ".join(run))


if __name__ == "__main__":
    main()
