"""Numbers and names in readable form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape


def size(num_bytes: float) -> str:
    """Bytes, in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:  # 1000 to three digits takes the next unit
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def traffic(sent: Mapping[str, float], full: Mapping[str, float]) -> str:
    """Bytes up and down; also those of full messages, if that differs."""
    words = f"↑ {size(sent['up'])} ↓ {size(sent['down'])}"
    other = both_ways(full)
    return words if other == both_ways(sent) else f"{words} (full messages: {size(other)})"


def both_ways(sent: Mapping[str, float]) -> float:
    """Bytes up and down together."""
    return sent["up"] + sent["down"]


def all_phases(by_phase: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Bytes up and down of a whole run."""
    return {way: sum(sent[way] for sent in by_phase.values()) for way in ("up", "down")}


def times_less(sent: Mapping[str, float], full: Mapping[str, float]) -> str:
    """``70× less`` if that is so; else empty."""
    ratio = both_ways(full) / (both_ways(sent) or 1.0)
    if ratio < 1.05:
        return ""
    return f"{ratio:.1f}× less" if ratio < 9.95 else f"{ratio:,.0f}× less"


def counted(count: int, noun: str) -> str:
    """``1 link``, ``2 links``, ``1,000 classes``."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """``a, b, c``; of many names the first ones, and how many others there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    first = sorted(names, key=natural)[:most]
    return f"{', '.join(first)} and {len(names) - most} others"


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key to sort names by, so that owner-2 comes before owner-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(0, int(part), part) if part[0] in "0123456789" else (1, 0, part) for part in parts]


def owners_of(count: int, partition: str) -> str:
    """How many owners there are, and how the graph was cut if it was."""
    cut = "" if partition in ("folders", "own") else f"{partition} "
    return counted(count, f"{cut}owner")


def html_table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = 20
) -> str:
    """A small table for notebooks; of more rows than ``most`` only the first are shown."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:most]
    )
    more = f"<p>… and {counted(len(rows) - most, 'more row')}</p>" if len(rows) > most else ""
    return (
        f"<div><p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}</div>"
    )
