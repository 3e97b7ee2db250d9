"""Sections on what was learned: curves, classes, and which class is mistaken for which."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from fedsage.report.bars import (
    Series,
    bar_chart,
    bar_sheet,
    dot_columns,
    heat_map,
    heat_sheet,
)
from fedsage.report.blocks import Figure, Grid, Section, short, titled
from fedsage.report.lines import Curve, line_chart, line_sheet
from fedsage.report.marks import bar_key, dot_key, line_key, method_color
from fedsage.report.read import Groups, Run

WANTED = (
    ("training", "validation", "accuracy on validation nodes"),
    ("training", "loss", "training loss of the classifier"),
    ("mending", "loss", "training loss of NeighGen"),
)


def curves(groups: Groups) -> Section | None:
    """Validation accuracy and loss over rounds."""
    figures = []
    for phase, key, caption in WANTED:
        found = [
            one
            for k, (method, runs) in enumerate(groups.items())
            if (one := curve(method, method_color(k), runs, phase, key)) is not None
        ]
        if found:
            picture, axis = line_chart(found, "round", caption)
            says = f"{last_words(found, key)} {axis}".strip()
            keys = [line_key(one.name, one.color) for one in found]
            figures.append(
                Figure(titled(caption), picture, says, line_sheet(found, "round"), keys)
            )
    note = "Mean over seeds; the band runs from the lowest seed to the highest."
    return Section("Training", note, [Grid(figures)]) if figures else None


def last_words(found: Sequence[Curve], key: str) -> str:
    """Where the curves end."""
    if key == "loss":
        ends = ", ".join(f"{one.name} {one.y[-1]:.3g}" for one in found)
        return f"In the last round: {ends}."
    ends = ", ".join(
        f"{one.name} {max(one.y):.3f} in round {one.x[list(one.y).index(max(one.y))]}"
        for one in found
    )
    return f"Highest mean: {ends}."


def curve(method: str, color: str, runs: Sequence[Run], phase: str, key: str) -> Curve | None:
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
    return Curve(
        method, color, common, [mean(c) for c in columns], [min(c) for c in columns],
        [max(c) for c in columns],
    )  # fmt: skip


def labels(groups: Groups) -> Section | None:
    """Predicted and true shares of every class, and the share of each class that is found."""
    order = list(groups)
    known = {m: runs for m, runs in groups.items() if runs[0].result["labels"] is not None}
    if not known:
        return None
    classes = next(iter(known.values()))[0].result["class_names"]
    names = [short(name, 16) for name in classes]
    full = [short(name, 60) for name in classes]
    truth = [run.result["labels"]["true"] for runs in known.values() for run in runs]
    shares = [Series("true", "truth", [mean(column) for column in zip(*truth, strict=True)])]
    found = []
    for method, runs in known.items():
        color = method_color(order.index(method))
        predicted = [run.result["labels"]["predicted"] for run in runs]
        means = [mean(column) for column in zip(*predicted, strict=True)]
        shares.append(Series(method, color, means))
        recall = [run.result["recall"] for run in runs]
        means = [mean(column) for column in zip(*recall, strict=True)]
        found.append(Series(method, color, means))
    picture, axis = dot_columns(names, found, "recall")
    note = "Test nodes classified on the whole graph, by class. Means over seeds."
    return Section("Labels", note, [Grid([
        Figure(
            "How often each class is true and predicted",
            bar_chart(names, shares, "share of test nodes"), furthest(shares, full),
            bar_sheet("class", classes, shares),
            [bar_key(one.name, one.color) for one in shares],
        ),
        Figure(
            "Share of each class that is found", picture,
            f"{hardest(found, full)} {axis}".strip(), bar_sheet("class", classes, found),
            [dot_key(one.name, f"dot {one.color}", 5) for one in found],
        ),
    ])])  # fmt: skip


def furthest(shares: Sequence[Series], names: Sequence[str]) -> str:
    """Which method over- or underestimates which class most."""
    truth, *methods = shares
    gaps = [
        (one.values[c] - truth.values[c], one.name, name)
        for one in methods
        for c, name in enumerate(names)
    ]
    gap, method, name = max(gaps, key=lambda one: abs(one[0]))
    word = "more" if gap > 0 else "less"
    return (
        f"The largest gap: {method} predicts {name} {word} often than it is true, by "
        f"{100 * abs(gap):.1f}% of all test nodes."
    )


def hardest(found: Sequence[Series], names: Sequence[str]) -> str:
    """The class that the best method finds least of."""
    best = max(found, key=lambda one: mean(one.values))
    least = min(range(len(names)), key=lambda c: best.values[c])
    return (
        f"{names[least]} is the hardest class for {best.name}: it finds "
        f"{100 * best.values[least]:.0f}% of it."
    )


def confusions(groups: Groups) -> Section | None:
    """Which class is mistaken for which, summed over seeds."""
    figures = []
    for k, (method, runs) in enumerate(groups.items()):
        found = [run.result["confusion"] for run in runs if run.result["confusion"]]
        if found:
            total = [
                [sum(cells) for cells in zip(*rows, strict=True)]
                for rows in zip(*found, strict=True)
            ]
            names = [short(name) for name in runs[0].result["class_names"]]
            picture = heat_map(total, names, names, "true", "predicted", method_color(k))
            full = [short(name, 60) for name in runs[0].result["class_names"]]
            sheet = heat_sheet(total, full, full, "true")
            figures.append(Figure(method, picture, mistaken(total, full), sheet))
    note = (
        "Test nodes of all seeds; the shade is the share of the row. Where every owner has a "
        "model of its own, each of these models answers for all test nodes."
    )
    return Section("Confusion", note, [Grid(figures)]) if figures else None


def mistaken(table: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    """The most frequent mistake."""
    size = len(names)
    wrong = [(table[r][c], r, c) for r in range(size) for c in range(size) if r != c]
    if not wrong or not max(wrong)[0]:
        return "No mistakes."
    count, r, c = max(wrong)
    total = sum(table[r]) or 1
    return (
        f"Most frequent mistake: {names[r]} taken for {names[c]}, {count:,} of {total:,} "
        f"nodes ({100 * count / total:.0f}%)."
    )
