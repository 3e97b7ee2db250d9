"""What sections are made of: headings, figures, tables, formatted numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import mean, stdev


def section(title: str, note: str, *inside: str) -> str:
    """A part of the page."""
    return f"<h2>{escape(title)}</h2><p>{escape(note)}</p>{''.join(inside)}"


def figure(caption: str, *inside: str) -> str:
    """A chart with its caption."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{''.join(inside)}</figure>"


def side_by_side(*figures: str) -> str:
    """Two columns where there is room."""
    return f'<div class="grid2">{"".join(figures)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls on a narrow screen."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation of the known values."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    more = f" ± {stdev(known):.4f}" if len(known) > 1 else ""
    return f"{mean(known):.4f}{more}"


def short(name: str) -> str:
    """A class's name that fits under a bar."""
    return name if len(name) <= 16 else name[:15] + "…"
