"""``fedsage.log``: what happened at a party, one line an event, for people to read."""

from __future__ import annotations

import os
import time
from pathlib import Path

DIARY = "fedsage.log"
MOST = 1 << 20  # bytes; then the file becomes fedsage.log.1, and a new one begins


def note(ours: Path, words: str) -> None:
    """Add a line; whatever happens, a log does not stop anything."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {' '.join(words.split())}\n"
    file = ours / DIARY
    try:
        if file.exists() and file.stat().st_size > MOST:
            os.replace(file, file.with_suffix(".log.1"))
        with file.open("a", encoding="utf-8") as log:
            log.write(line)
    except OSError:
        return
