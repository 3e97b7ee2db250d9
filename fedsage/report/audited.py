"""The section about an audit: what was attacked, and how it went, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsage.audit.audit import read_audit
from fedsage.report.blocks import Section, Table
from fedsage.report.read import Run

COLUMNS = ("attack", "attacker", "sees", "figure", "value", "chance", "on the sum", "verdict",
           "note")  # fmt: skip
WORDS = {
    "holds": "holds: no better than chance",
    "leaks": "leaks: better than chance",
    "not run": "not run",
}


def audited(runs: Sequence[Run]) -> list[Section]:
    """What audits of these runs found; nothing where there was none."""
    return [audit_section(run, found) for run in runs if (found := read_audit(run.folder))]


def audit_section(run: Run, found: Mapping[str, Any]) -> Section:
    """One audit."""
    attacks = found["attacks"]
    rows = [
        (one["name"], one["attacker"], one["sees"], one["figure"], number(one["value"]),
         number(one["chance"]), number(one["sum"]), WORDS[one["verdict"]], one["note"])
        for one in attacks
    ]  # fmt: skip
    note = (
        f"{run.method}, seed {found['seed']}, privacy {found['privacy']}, traffic "
        f"{found['traffic']}. {summary(attacks)}"
    )
    return Section("Audit", note, [Table("Audit", COLUMNS, rows, text=True)])


def summary(attacks: Sequence[Mapping[str, Any]]) -> str:
    """Which attacks succeeded, which did not, and which were not tried."""
    names = {
        verdict: [one["name"] for one in attacks if one["verdict"] == verdict]
        for verdict in WORDS
    }
    said = [
        f"{words}: {', '.join(names[verdict])}."
        for verdict, words in (
            ("leaks", "Attacks that succeeded"),
            ("holds", "Attacks that got no further than chance"),
            ("not run", "Not tried"),
        )
        if names[verdict]
    ]
    return " ".join(said)


def number(value: float | None) -> str:
    """A figure."""
    return "–" if value is None else f"{value:.4g}"
