"""The tables of docs/performance.md from what ``fedsage bench`` measured.

    fedsage bench --suite all --json > docs/results/bench.json
    python benchmarks/kernels.py
    python benchmarks/performance.py

Each suite's table stands between ``<!-- SUITE -->`` and ``<!-- /SUITE -->``, the machine
between ``<!-- machine -->`` marks. A suite that was not measured keeps the table it has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from result_tables import between_marks

from fedsage.errors import DataError

ROOT = Path(__file__).parent.parent


def number(value: float) -> str:
    """Three digits, and no powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def measured(figure: Mapping[str, Any]) -> str:
    """The median, and the lowest and highest value where there are several."""
    unit = f" {figure['unit']}" if figure["unit"] else ""
    if figure["repeats"] < 2 or figure["among"] is None:
        return f"{number(figure['value'])}{unit}"
    low, high = figure["among"]
    return f"{number(figure['value'])} ({number(low)}–{number(high)}){unit}"


def ratio(figure: Mapping[str, Any]) -> str:
    """Baseline ÷ measured, with its spread."""
    if figure["ratio"] is None:
        return ""
    spread = figure["spread"]
    among = f" ({number(spread[0])}–{number(spread[1])})" if figure["repeats"] > 1 else ""
    return f"{number(figure['ratio'])}×{among}"


def wanted(figure: Mapping[str, Any]) -> str:
    """What we want of the figure; bold where it is missed."""
    if figure["at_most"] is not None:
        words = f"≤ {number(figure['at_most'])} {figure['unit']}".strip()
    elif figure["at_least"] is not None:
        words = f"≥ {number(figure['at_least'])}×"
    else:
        return ""
    return words if figure["met"] else f"**{words}: missed**"


def table(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One suite."""
    yield "| figure | measured | baseline | ratio | wanted |"
    yield "|---|---|---|---|---|"
    for one in figures:
        base = "" if one["baseline"] is None else f"{number(one['baseline'])} {one['unit']}"
        name = one["name"].replace("|", "/")
        yield f"| {name} | {measured(one)} | {base} | {ratio(one)} | {wanted(one)} |"


def machine_words(found: Mapping[str, Any]) -> Iterator[str]:
    """What it was measured on, and how much of what we want is met."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    asked = [
        f for f in found["figures"] if f["at_most"] is not None or f["at_least"] is not None
    ]
    met = sum(bool(one["met"]) for one in asked)
    about = found["machine"]
    yield f"{about['system']}, {about['arch']}, {about['cpus']} cores; {versions}; commit"
    yield f"{found['commit']}. {met} of {len(asked)} figures that have a target meet it."


def kernels(found: Mapping[str, Any]) -> Iterator[str]:
    """Accuracy by the compiled step and by torch."""
    yield "| dataset | method | compiled | torch | difference, 95% | CPU s, compiled | torch |"
    yield "|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        means = [f"{row[k]['mean']:.4f} ± {row[k]['std']:.4f}" for k in ("fused", "torch")]
        gap = row["paired"]
        among = f"{gap['difference']:+.4f} ({gap['from']:+.4f} to {gap['to']:+.4f})"
        cpu = [number(row["cpu_seconds"][k]) for k in ("fused", "torch")]
        cells = [row["dataset"], row["method"], *means, among, *cpu]
        yield f"| {' | '.join(cells)} |"


def renewed(text: str, found: Mapping[str, Any]) -> str:
    """The page with the tables of the suites that were measured."""
    suites: dict[str, list[Mapping[str, Any]]] = {}
    for one in found["figures"]:
        suites.setdefault(one["suite"], []).append(one)
    text = between_marks(text, "machine", machine_words(found))
    for suite, figures in suites.items():
        text = between_marks(text, suite, table(figures))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="of the source tree")
    root = parser.parse_args().root
    measurements = root / "docs" / "results" / "bench.json"
    if not measurements.exists():
        raise DataError(
            f"{measurements} is not there. Make it with 'fedsage bench --suite all --json'."
        )
    path = root / "docs" / "performance.md"
    text = renewed(path.read_text(), json.loads(measurements.read_text()))
    by_kernel = measurements.with_name("kernels.json")
    if by_kernel.exists():
        text = between_marks(text, "kernels", kernels(json.loads(by_kernel.read_text())))
    path.write_text(text)


if __name__ == "__main__":
    main()
