"""Sections on what was learned: curves, classes, and what mending attached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from fedsage.report.charts import Line, bar_chart, heat_map, legend, line_chart
from fedsage.report.parts import figure, section, short, side_by_side, table
from fedsage.report.read import Run


def curves(groups: Mapping[str, Sequence[Run]]) -> str:
    """Validation accuracy and loss over rounds."""
    wanted = (
        ("training", "validation", "accuracy on validation nodes"),
        ("training", "loss", "training loss of the classifier"),
        ("mending", "loss", "training loss of NeighGen"),
    )
    figures = []
    for phase, key, title in wanted:
        lines = [
            line
            for color, (method, runs) in enumerate(groups.items())
            if (line := curve(method, color % 8, runs, phase, key)) is not None
        ]
        if lines:
            chart = line_chart(lines, "round", title)
            keys = legend([one.name for one in lines], [one.color for one in lines])
            figures.append(figure(title, chart, keys))
    note = "Mean over seeds; the band runs from the lowest to the highest seed."
    return section("Training", note, side_by_side(*figures)) if figures else ""


def curve(method: str, color: int, runs: Sequence[Run], phase: str, key: str) -> Line | None:
    """One method's curve; the local models of one run are averaged first."""
    each: list[dict[int, float]] = []
    for run in runs:
        values: dict[int, list[float]] = {}
        for line in run.history:
            if line["phase"] == phase and line[key] is not None:
                values.setdefault(line["round"] + 1, []).append(line[key])
        each.append({t: mean(found) for t, found in values.items()})
    common = sorted(set.intersection(*(set(one) for one in each)))
    if not common:
        return None
    columns = [[one[t] for one in each] for t in common]
    return Line(
        method, color, common, [mean(c) for c in columns], [min(c) for c in columns],
        [max(c) for c in columns],
    )  # fmt: skip


def labels(groups: Mapping[str, Sequence[Run]]) -> str:
    """Predicted and true shares of every class."""
    known = {m: runs for m, runs in groups.items() if runs[0].result["labels"] is not None}
    if not known:
        return ""
    classes = next(iter(known.values()))[0].result["class_names"]
    truth = [run.result["labels"]["true"] for runs in known.values() for run in runs]
    series = [("true", [mean(column) for column in zip(*truth, strict=True)])]
    for method, runs in known.items():
        shares = [run.result["labels"]["predicted"] for run in runs]
        series.append((method, [mean(column) for column in zip(*shares, strict=True)]))
    found = [("", [0.0] * len(classes))]  # no bar for the truth, so that colors match
    for method, runs in known.items():
        each = [run.result["recall"] for run in runs]
        found.append((method, [mean(column) for column in zip(*each, strict=True)]))
    names = [short(name) for name in classes]
    keys = legend([name for name, _ in series], [k % 8 for k in range(len(series))], bars=True)
    note = "Test nodes queried on the whole graph, by class. Means over seeds."
    return section(
        "Labels", note,
        side_by_side(
            figure("how often each class is true and predicted",
                   bar_chart(names, series, "share of test nodes"), keys),
            figure("share of each class found", bar_chart(names, found, "recall"), keys),
        ),
    )  # fmt: skip


def confusions(groups: Mapping[str, Sequence[Run]]) -> str:
    """Which class is mistaken for which, summed over seeds."""
    figures = []
    for method, runs in groups.items():
        found = [run.result["confusion"] for run in runs if run.result["confusion"]]
        if found:
            total = [
                [sum(cells) for cells in zip(*rows, strict=True)]
                for rows in zip(*found, strict=True)
            ]
            names = [short(name) for name in runs[0].result["class_names"]]
            figures.append(figure(method, heat_map(total, names, names, "true", "predicted")))
    note = "Test nodes of all seeds; the shade shows the share of the row."
    return section("Confusion", note, side_by_side(*figures)) if figures else ""


def mending(groups: Mapping[str, Sequence[Run]]) -> str:
    """What was attached to owners' graphs, beside what is missing."""
    mended = {m: runs[0].result["mending"] for m, runs in groups.items()}
    mended = {method: found for method, found in mended.items() if found is not None}
    if not mended:
        return ""

    def distance(value: dict[str, float] | None) -> str:
        return "–" if value is None else f"{value['mean']:.3f} ± {value['std']:.3f}"

    def number(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:,.{digits}f}"

    rows = [
        (
            method,
            f"{found['generated']:,}",
            number(found["missing"], 0),
            number(found["count_correlation"]),
            distance(found["distance_plain"]),
            distance(found["distance_mended"]),
            f"{number(found['norm_generated'])} / {number(found['norm_real'])}",
            "–" if found["picked"] is None else f"{100 * found['picked']:.1f}%",
        )
        for method, found in mended.items()
    ]
    columns = ("method", "attached", "missing", "correlation of counts", "L2(N, N_i)",
               "L2(N, N'_i)", "length: generated / real", "ever nearest")  # fmt: skip
    maps = [
        figure(f"{method}: neighbors missing and attached", counts_map(found["counts"]))
        for method, found in mended.items()
        if found["counts"]
    ]
    note = (
        "For the first seed. L2: distance between the mean features of a node's neighbors and "
        "those on the whole graph, before and after mending. Ever nearest: share of all nodes "
        "that were ever the nearest to a generated neighbor."
    )
    return section("Mending", note, table(columns, rows), side_by_side(*maps))


def counts_map(counts: Sequence[Sequence[int]], most: int = 8) -> str:
    """Nodes by the number of missing and attached neighbors; the last is "or more"."""
    rows = max((r for r, row in enumerate(counts) if any(row)), default=0) + 1
    columns = max((c for row in counts for c, count in enumerate(row) if count), default=0) + 1
    table = [[0] * min(columns, most + 1) for _ in range(min(rows, most + 1))]
    for r, row in enumerate(counts[:rows]):
        for c, count in enumerate(row[:columns]):
            table[min(r, most)][min(c, most)] += count

    def names(size: int) -> list[str]:
        return [str(k) if k < most else f"{most}+" for k in range(min(size, most + 1))]

    return heat_map(table, names(rows), names(columns), "missing", "attached")
