"""How many files of the package one run enters, and one message in process.

    python benchmarks/walks.py

A file is entered when a function of it is called, by whichever thread; what runs when it is
imported does not count. Of a message, the files that carry it are counted apart from those that
only the owner's own computation enters.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import fedsage as fs
from fedsage.config import load_config
from fedsage.data.synthetic import synthetic
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.partition import partition
from fedsage.mending.subspace import first_directions, sketch_sizes
from fedsage.protocol.exchange import Exchange
from fedsage.runs.execute import run_config
from fedsage.runs.setup import data_owners, prepare

PACKAGE = Path(fs.__file__).parent
SMALL = {
    "data": {"dataset": "synthetic"},
    "synthetic": {"nodes": 400, "features": 80},
    "classifier": {"rounds_c": 3},
}


@contextmanager
def entered(apart: CodeType | None = None) -> Iterator[set[str]]:
    """The files whose functions are called inside, without what ``apart`` calls."""
    found: set[str] = set()
    within = threading.local()  # whether this thread is inside the function apart

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code is apart and event in ("call", "return"):
            within.now = event == "call"
        elif getattr(within, "now", False):
            return
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


def files_of(call: Callable[[], object], apart: CodeType | None = None) -> list[str]:
    """The files that a call enters once everything is imported."""
    call()
    with entered(apart) as found:
        call()
    return sorted(found)


def run_walk() -> list[str]:
    """The files that FedSage+ in process enters."""
    config = load_config(SMALL)
    return files_of(lambda: run_config(config))


def message_walk() -> tuple[list[str], list[str]]:
    """The files that carry a message and its reply, and those that the owner's work enters."""
    config = load_config(SMALL)
    graph = synthetic(**config.synthetic.model_dump())
    setup = prepare(config, partition(graph, 3, "louvain", 0), graph)
    exchange = Exchange(InProcessEngine(data_owners(setup)[0]), setup.plan)
    first = first_directions(setup.plan)
    function = sketch_sizes.function.__code__  # type: ignore[attr-defined]
    carrying = files_of(lambda: exchange.sum(sketch_sizes, first), function)
    whole = files_of(lambda: exchange.sum(sketch_sizes, first))
    return carrying, [one for one in whole if one not in carrying]


def main() -> None:
    """Print both walks."""
    show("One run (FedSage+ in process)", run_walk())
    carrying, computing = message_walk()
    show("One message and its reply, with the owner's function,", carrying)
    show("What that function computes", computing)


def show(what: str, files: list[str]) -> None:
    """A walk, one file a line."""
    print(f"{what} enters {len(files)} files:")
    print("  " + "\n  ".join(files))


if __name__ == "__main__":
    main()
