"""Tables of five made-up banks, for banks.py.

Few accounts are suspicious, and their own columns hardly show it. Who they pay does: mostly new
accounts that deal in cash. Four payments in five go to another bank.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ACCOUNTS, PAYMENTS, BANKS = 4000, 16_000, 5
SCHEMA = """classes = ["usual", "suspicious"]
links = "known"  # payments may lead to accounts at other banks
[features]
days_open = { kind = "count" }
cash = { kind = "number" }
"""


def write_banks(folder: Path, seed: int) -> None:
    """A folder of tables for each bank."""
    draws = np.random.default_rng(seed)
    bank, new = draws.integers(BANKS, size=ACCOUNTS), draws.random(ACCOUNTS) < 0.2
    suspicious = draws.random(ACCOUNTS) < 0.1
    payer, payee = draws.integers(ACCOUNTS, size=(2, PAYMENTS))
    odd = suspicious[payer] & (draws.random(PAYMENTS) < 0.9)
    payee[odd] = draws.choice(np.flatnonzero(new), odd.sum())
    days = draws.gamma(2, np.where(new, 50, 500)).astype(int)
    cash = draws.normal(np.where(new, 0.7, 0.3) + 0.05 * suspicious, 0.15).round(3)
    label = np.where(suspicious, "suspicious", "usual")
    links = {(a, b) for a, b in zip(payer.tolist(), payee.tolist(), strict=True) if a != b}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    for i in range(BANKS):
        own = np.flatnonzero(bank == i)
        nodes = [(f"a{v}", days[v], cash[v], label[v]) for v in own]
        write(folder / f"bank-{i}" / "nodes.csv", ("id", "days_open", "cash", "label"), nodes)
        edges = [
            (f"a{a}", f"a{b}", "" if bank[a] == bank[b] else f"bank-{bank[a] + bank[b] - i}")
            for a, b in sorted(links)
            if i in (bank[a], bank[b])
        ]
        write(folder / f"bank-{i}" / "edges.csv", ("source", "target", "owner"), edges)


def write(path: Path, names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    """One table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


if __name__ == "__main__":
    write_banks(Path("banks"), seed=0)
    print("Written to banks")
