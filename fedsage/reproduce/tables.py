"""Tables with the paper's values beside ours: Markdown, CSV and JSON from the same rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any, TypeAlias

TableRow: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with the same keys, a title and a note."""

    title: str
    rows: list[TableRow]
    note: str = ""

    def markdown(self) -> str:
        """The table as Markdown."""
        if not self.rows:
            return f"## {self.title}\n\nNothing yet.\n"
        columns = list(self.rows[0])
        lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [
            f"| {' | '.join(markdown_cell(row[c]) for c in columns)} |" for row in self.rows
        ]
        note = f"\n{self.note}\n" if self.note else ""
        return f"## {self.title}\n{note}\n" + "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The table as CSV."""
        out = io.StringIO()
        writer = csv.DictWriter(
            out, list(self.rows[0]) if self.rows else [], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()


def markdown_cell(value: object) -> str:
    """A cell of a Markdown table."""
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def beside_paper(values: Sequence[float], paper: Sequence[float] | None) -> TableRow:
    """Our mean and spread, the paper's, the difference, and whether it is more than noise.

    A cell is marked if the means differ by more than two standard deviations, ours and the
    paper's combined.
    """
    ours = mean(values)
    spread = stdev(values) if len(values) > 1 else 0.0
    row: TableRow = {"ours": ours, "std": spread, "seeds": len(values)}
    if paper is None:
        return row | {"paper": None, "paper std": None, "difference": None, "marked": ""}
    theirs, theirs_spread = float(paper[0]), float(paper[1]) if len(paper) > 1 else 0.0
    far = abs(ours - theirs) > 2 * sqrt(spread**2 + theirs_spread**2)
    return row | {
        "paper": theirs,
        "paper std": theirs_spread,
        "difference": ours - theirs,
        "marked": "differs" if far and len(values) > 1 else "",
    }


def paired_difference(ours: Mapping[int, float], base: Mapping[int, float]) -> TableRow:
    """The mean difference over common seeds, with a 95% confidence interval (Student's t)."""
    gaps = [ours[seed] - base[seed] for seed in sorted(set(ours) & set(base))]
    if len(gaps) < 2:
        return {"difference": gaps[0] if gaps else None, "from": None, "to": None,
                "seeds": len(gaps)}  # fmt: skip
    from scipy.stats import t

    half = float(t.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / sqrt(len(gaps))
    middle = mean(gaps)
    return {"difference": middle, "from": middle - half, "to": middle + half,
            "seeds": len(gaps)}  # fmt: skip
