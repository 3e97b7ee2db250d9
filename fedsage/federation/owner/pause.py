"""An owner steers its part of a run: pause it, go on, or leave after this round."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fedsage.errors import ConfigError, ProtocolError
from fedsage.files import write_json

STEER = "steer.json"  # in a kit: what the owner wants of the run in progress
LOOK = 0.2  # seconds between two looks at it
Wish: TypeAlias = Literal["go on", "pause", "leave"]


def wish_of(ours: Path, run: str) -> Wish:
    """What the owner wants of a run; by default that it goes on."""
    try:
        found = json.loads((ours / STEER).read_text())
    except (OSError, ValueError):
        return "go on"
    known = found.get("run") == run and found.get("wish") in get_args(Wish)
    wish: Wish = found["wish"] if known else "go on"
    return wish


def steer(ours: Path, run: str, wish: str) -> None:
    """Write down what the owner wants; it holds from the next round on."""
    if wish not in get_args(Wish):
        raise ConfigError(f"'{wish}' is not one of {', '.join(get_args(Wish))}.")
    if wish_of(ours, run) == "leave":
        raise ConfigError(f"You have left {run} already; a run is left for good.")
    write_json(ours / STEER, {"run": run, "wish": wish})


class Steering:
    """Heeds the owner's wish where a round begins, so that no round is torn apart.

    Args:
        ours: The folder of the kit's own files.
        run: The name of the run.
    """

    def __init__(self, ours: Path, run: str) -> None:
        self.ours, self.run = ours, run
        self.round: int | None = None
        self.left = False

    def heed(self, request: Any) -> None:
        """Hold a request of a new round while paused; refuse it once the owner has left.

        A server that waits too long for a paused owner continues without it, as if it were
        slow.
        """
        began = getattr(request, "t", None)
        if began is not None and began != self.round:
            while (wish := wish_of(self.ours, self.run)) == "pause":
                time.sleep(LOOK)
            self.left, self.round = self.left or wish == "leave", began
        if self.left:
            raise ProtocolError("it has left the run, by its owner's decision")
