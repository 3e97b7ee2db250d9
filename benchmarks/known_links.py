"""Known links beside no links and the truth: ten random owners, and a share of links known.

    python -m benchmarks.known_links --datasets cora,citeseer --seeds 5
    python -m benchmarks.known_links --docs      # table and figure of docs/known-links.md

A cell that is in the file with the same settings is not run again. All arms have the preset
``best`` and features as they come; paired by seed, they see the same owners, splits and first
weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mending import DATASETS, FOLDER, compared, held, measure, values
from fedsage.config import Config, load_config
from fedsage.shapes import Array

ARMS = {
    "FedSage": "fedsage",
    "copy": "fedsage+copy",
    "FedSage+": "fedsage+",
    "links": "fedsage+links",
    "oracle": "oracle",
}
GAINS = {
    "copy": "a copy of each node",
    "FedSage+": "FedSage+",
    "links": "known links",
    "oracle": "all true neighbors",
}
COLORS = ("#b8bcc4", "#4878cf", "#1b8a4f", "#22262e")
TITLES = dict(zip(DATASETS, ("Cora", "CiteSeer", "PubMed", "MSAcademic"), strict=True))
QUERIED = {"global": "queried on the whole graph", "local": "queried at owners"}
SHARES = (0.25, 0.5, 0.75, 1.0)
PAGE = FOLDER.parent / "known-links.md"


def cells_of(dataset: str, seeds: int) -> Iterator[tuple[Config, dict[str, str]]]:
    """Every arm on every seed; links also with a smaller share of them known, on Cora."""
    for seed in range(seeds):
        for arm, method in ARMS.items():
            for share in SHARES if arm == "links" and dataset == "cora" else (1.0,):
                data = {
                    "dataset": dataset,
                    "owners": 10,
                    "partition": "random",
                    "features": "raw",
                }
                chosen = {"run": {"method": method, "seed": seed}, "data": data}
                links = {"links": {"share": share}} if arm == "links" else {}
                name = arm if share == 1.0 else f"links, {share:g} known"
                yield load_config(chosen, links), {"arm": name}


def arms_of(dataset: str) -> dict[str, list[dict[str, Any]]]:
    """The runs in a result file, by arm, in order of seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(held(f"known-links-{dataset}"), key=lambda run: run["seed"]):
        found.setdefault(run["arm"], []).append(run)
    return found


def gains_of(arms: Mapping[str, list[dict[str, Any]]], arm: str, kind: str) -> Array:
    """How far an arm is above FedSage, seed by seed, in points."""
    ours, base = values(arms[arm], kind), values(arms["FedSage"], kind)
    return np.array([100 * (ours[seed] - base[seed]) for seed in sorted(set(ours) & set(base))])


def table() -> Iterator[str]:
    """Mean ± standard deviation, and the paired difference to FedSage with its error."""
    columns = "dataset", "method", "global", "− FedSage", "local", "− FedSage"
    yield f"| {' | '.join(columns)} | of the oracle's gain | seeds |"
    yield "|---|---|---|---|---|---|---|---|"
    for dataset in DATASETS:
        arms = arms_of(dataset)
        for arm in [arm for arm in ARMS if arm in arms]:
            cells = [
                cell
                for kind in ("global", "local")
                for cell in compared(values(arms[arm], kind), values(arms["FedSage"], kind))
            ]
            gain = ""
            if arm in ("copy", "FedSage+", "links") and "oracle" in arms:
                most = gains_of(arms, "oracle", "local").mean()
                gain = f"{gains_of(arms, arm, 'local').mean() / most:.0%}"
            yield f"| {dataset} | {arm} | {' | '.join(cells)} | {gain} | {len(arms[arm])} |"


def figure(path: Path) -> None:
    """Accuracy at Cora's owners against the share of links that are known."""
    plt, arms = pyplot(), arms_of("cora")
    names = {0.0: "FedSage", **{s: f"links, {s:g} known" for s in SHARES[:-1]}, 1.0: "links"}
    names = {share: name for share, name in names.items() if name in arms}
    points = [list(values(arms[name], "local").values()) for name in names.values()]
    shares = list(names)
    plot, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    mean, spread = np.mean(points, axis=1), np.std(points, axis=1, ddof=1)
    axes.errorbar(
        shares, 100 * mean, 100 * spread, marker="o", capsize=3, label="FedSage+ by links"
    )
    oracle = 100 * np.mean(list(values(arms["oracle"], "local").values()))
    axes.axhline(oracle, color="gray", linestyle="--", label="oracle: all true neighbors")
    axes.set(
        xlabel="share of links between owners that are known", ylabel="accuracy at owners, %"
    )
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    plot.savefig(path, metadata={"Date": None})


def gains(path: Path) -> None:
    """What each way gains over FedSage with ten random owners, on G and at owners."""
    plt = pyplot()
    plot, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    found = {name: arms for name in DATASETS if GAINS.keys() <= (arms := arms_of(name)).keys()}
    for (kind, title), axes in zip(QUERIED.items(), panels, strict=True):
        for k, arm in enumerate(GAINS):
            each = [gains_of(arms, arm, kind) for arms in found.values()]
            at = np.arange(len(found)) + 0.2 * (k - 1.5)
            error = [one.std(ddof=1) / np.sqrt(len(one)) if len(one) > 1 else 0 for one in each]
            means = [one.mean() for one in each]
            axes.bar(at, means, 0.19, yerr=error, capsize=2, label=GAINS[arm], color=COLORS[k])
        axes.set_xticks(range(len(found)), [TITLES[name] for name in found])
        axes.set_title(title)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("points above FedSage")
    panels[1].legend(frameon=False)
    plot.savefig(path, metadata={"Date": None})


def pyplot() -> Any:
    """Matplotlib's plots, the same file for the same numbers."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "fedsage"
    return plt


def write_docs() -> None:
    """Renew what stands between the marks of the page, and its figure."""
    before, _, rest = PAGE.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- /table -->")
    lines = "\n".join(table())
    PAGE.write_text(f"{before}<!-- table -->\n{lines}\n<!-- /table -->{after}")
    figure(PAGE.with_suffix(".svg"))
    gains(PAGE.with_name("gains.svg"))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--docs", action="store_true", help="renew docs/known-links.md")
    arguments = parser.parse_args(given)
    if arguments.docs:
        write_docs()
        return
    for dataset in arguments.datasets.split(","):
        path = FOLDER / f"known-links-{dataset}.json"
        measure(path, cells_of(dataset, arguments.seeds))


if __name__ == "__main__":
    main()
