"""The table of docs/known-links.md and the figure docs/gains.svg, from ``reproduce links``.

fedsage reproduce links --preset best --out docs/results/reproduce/best
python -m benchmarks.known_links
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_tables import NAMES, ROOT, between_marks, markdown, read_study
from fedsage.reproduce.links import BASE, LINKS, ORACLE
from fedsage.shapes import Array

STUDY = ROOT / "docs" / "results" / "reproduce" / "best" / "links.json"
PAGE = ROOT / "docs" / "known-links.md"
GAINS = {
    "fedsage+copy": "a copy of each node",
    "fedsage+": "FedSage+",
    LINKS: "known links",
    ORACLE: "all true neighbors",
}
COLORS = ("#b8bcc4", "#4878cf", "#1b8a4f", "#22262e")
QUERIED = {"global": "queried on the whole graph", "local": "queried at owners"}
EVERYTHING = ("0", "1")  # of the links is known, or nothing: shares are in the figure


def table(study: Mapping[str, Any]) -> Iterator[str]:
    """The study's rows with all links known, or none."""
    rows = [row for row in study["tables"][0]["rows"] if row["known"] in EVERYTHING]
    columns = [name for name in rows[0] if name != "known"]
    yield from markdown(columns, [[str(row[name]) for name in columns] for row in rows])


def gains_of(study: Mapping[str, Any], dataset: str, method: str, kind: str) -> Array:
    """How far a method is above FedSage, seed by seed, in points."""
    ours, base = (
        {
            run["seed"]: run["accuracy"][kind]
            for run in study["runs"]
            if (run["dataset"], run["method"]) == (dataset, one) and run["known"] in (0, 1)
        }
        for one in (method, BASE)
    )
    return np.array([100 * (ours[seed] - base[seed]) for seed in sorted(set(ours) & set(base))])


def standard_error(gains: Array) -> float:
    """Of their mean; not a number for a single seed, which has no known error: no bar."""
    return float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan


def draw_gains(study: Mapping[str, Any], path: Path) -> None:
    """What each way gains over FedSage with ten random owners, on G and at owners."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "fedsage"  # the same file for the same numbers
    plot, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    found = list(dict.fromkeys(run["dataset"] for run in study["runs"]))
    for (kind, title), axes in zip(QUERIED.items(), panels, strict=True):
        for k, method in enumerate(GAINS):
            each = [gains_of(study, dataset, method, kind) for dataset in found]
            at = np.arange(len(found)) + 0.2 * (k - 1.5)
            means, errors = [one.mean() for one in each], [standard_error(one) for one in each]
            axes.bar(
                at, means, 0.19, yerr=errors, capsize=2, label=GAINS[method], color=COLORS[k]
            )
        axes.set_xticks(range(len(found)), [NAMES[name] for name in found])
        axes.set_title(title)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("points above FedSage")
    panels[1].legend(frameon=False)
    plot.savefig(path, metadata={"Date": None})


def main() -> None:
    """Renew both."""
    study = read_study(STUDY)
    PAGE.write_text(between_marks(PAGE.read_text(), "table", table(study)))
    draw_gains(study, PAGE.with_name("gains.svg"))


if __name__ == "__main__":
    main()
