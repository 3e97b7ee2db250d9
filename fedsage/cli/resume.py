"""What Ctrl-C leaves behind, and how to continue from there."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path


class Interrupted(Exception):
    """Somebody pressed Ctrl-C; the message says how to continue."""


@contextlib.contextmanager
def says_how_to_resume(words: Sequence[str], folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message with the command that resumes the runs in ``folder``."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(how_to_resume(words, folder)) from None


def how_to_resume(words: Sequence[str], folder: Path) -> str:
    """What to type after Ctrl-C, given the ``words`` of the command."""
    if "--record" in words:
        return "Interrupted. A recorded run cannot be resumed: start it again with --force."
    if not folder.exists() or not any(folder.iterdir()):
        return "Interrupted before anything was saved. Start it again."
    return f"Interrupted. To resume: {resume_command(words, folder)}"


def resume_command(words: Sequence[str], folder: Path) -> str:
    """The same command with --out and --resume, so that it continues where it stopped."""
    kept = [word for word in words if word not in ("--resume", "--force")]
    if not any(word == "--out" or word.startswith("--out=") for word in kept):
        kept += ["--out", str(folder)]
    return shlex.join(["fedsage", *kept, "--resume"])
