"""Numbers as a person reads them; for the command line and the report."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """Bytes, in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
