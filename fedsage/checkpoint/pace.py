"""Which rounds are kept where all parties are one process, and stop together."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

from fedsage.protocol.procedures import Phase

Due: TypeAlias = Callable[[Phase, int], bool]
SECONDS = 1.0  # of work that a kill may cost


def always(phase: Phase, step: int) -> bool:
    """Every round, where parties stop one by one."""
    return True


def once_a_second() -> Due:
    """The first round of a phase, and then one whenever a second has passed.

    The server and all owners ask, and get one answer for a round: what one of them keeps, all
    of them keep.
    """
    told: dict[tuple[Phase, int], bool] = {}
    last: dict[Phase, float] = {}
    one_by_one = Lock()  # owners may work in threads

    def due(phase: Phase, step: int) -> bool:
        with one_by_one:
            if (phase, step) not in told:
                now = time.monotonic()
                told[phase, step] = phase not in last or now - last[phase] >= SECONDS
                if told[phase, step]:
                    last[phase] = now
            return told[phase, step]

    return due
