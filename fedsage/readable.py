"""Numbers and names as a person reads them."""

from __future__ import annotations

import re


def size(num_bytes: float) -> str:
    """Bytes, in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def counted(count: int, noun: str) -> str:
    """``1 link``, ``2 links``, ``1,000 links``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key to sort names by, so that owner-2 comes before owner-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(0, int(part), part) if part[0] in "0123456789" else (1, 0, part) for part in parts]


def owners_of(count: int, partition: str) -> str:
    """How many owners there are, and how the graph was cut if it was."""
    cut = "" if partition == "folders" else f"{partition} "
    return counted(count, f"{cut}owner")
