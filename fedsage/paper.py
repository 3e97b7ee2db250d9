"""The values printed in the paper, as data."""

from __future__ import annotations

import sys
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


NAME_IN_PAPER = {
    "fedsage+neighgen": "fedsage+"
}  # the paper's FedSage+, whatever way of mending the preset has


@cache
def paper_values() -> dict[str, Any]:
    """All of ``paper.toml``."""
    text = files("fedsage").joinpath("paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def paper_accuracy(method: str, dataset: str, owners: int, partition: str) -> float | None:
    """Table 2's accuracy for that cell, or None if the paper has no such cell."""
    table = paper_values()["table-main"]
    cells = table.get(dataset, {}).get(NAME_IN_PAPER.get(method, method))
    if cells is None or partition != "louvain" or owners not in table["owners"]:
        return None
    return float(cells[table["owners"].index(owners)][0])
