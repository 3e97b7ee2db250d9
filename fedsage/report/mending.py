"""The section on mending: what was attached, beside what is really missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsage.report.bars import heat_map, heat_sheet
from fedsage.report.blocks import Block, Figure, Grid, Section, Sheet, Table, Value, average
from fedsage.report.dots import Dots, dot_chart, dot_keys
from fedsage.report.marks import method_color
from fedsage.report.read import Groups

MOST = 8  # neighbors; more count as that many


def mending(groups: Groups) -> Section | None:
    """Diagnostics of all runs that mended, as means over seeds."""
    mended = {
        method: found
        for method, runs in groups.items()
        if (found := [run.result["mending"] for run in runs if run.result["mending"]])
    }
    if not mended:
        return None
    order = list(groups)
    blocks: list[Block] = [table_of(mended)]
    figures = [one for one in (change_chart(mended, order),) if one is not None]
    for method, found in mended.items():
        if found[0]["counts"]:
            table, rows, columns = counts_of(found)
            color = method_color(order.index(method))
            picture = heat_map(table, rows, columns, "missing", "attached", color, 22)
            caption = f"Neighbors missing and attached: {method}"
            sheet = heat_sheet(table, rows, columns, "missing")
            figures.append(Figure(caption, picture, about_counts(found), sheet))
    if figures:
        blocks.append(Grid(figures))
    note = (
        "Mending attaches generated neighbors to owners' nodes. Whether they resemble the "
        "neighbors that are really missing can be checked only where somebody holds the "
        "whole graph."
    )
    return Section("Mending", note, blocks)


def table_of(mended: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Counts, distances and lengths: means over seeds."""
    rows, sheet = [], list[list[Value]]()
    for method, found in mended.items():

        def of(key: str, found: Sequence[Mapping[str, Any]] = found) -> float | None:
            return average([one[key] for one in found])

        before, after = distances(found)
        values = [of("generated"), of("missing"), of("count_correlation"), before, after,
                  of("norm_generated"), of("norm_real"), of("picked")]  # fmt: skip
        sheet.append([method, *values])
        rows.append(
            (method, number(values[0], 0), number(values[1], 0), number(values[2], 2),
             number(before, 3), number(after, 3), number(values[5], 2), number(values[6], 2),
             "–" if values[7] is None else f"{100 * values[7]:.1f}%")
        )  # fmt: skip
    columns = ("method", "neighbors attached", "neighbors missing", "correlation of counts",
               "distance before", "distance after", "length, generated", "length, real",
               "ever nearest")  # fmt: skip
    says = (
        "Means over seeds. Distance: from the mean features of a node's neighbors to those on "
        "the whole graph, over nodes that miss a neighbor, before and after mending. Length: "
        "root mean square of features. Ever nearest: share of nodes that were ever the nearest "
        "to a generated neighbor."
    )
    return Table("What mending attached", columns, rows, Sheet(columns, sheet), says)


def distances(found: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Mean distance from true neighborhoods, before and after mending."""
    each = [
        average([one[key] and one[key]["mean"] for one in found])
        for key in ("distance_plain", "distance_mended")
    ]
    return each[0], each[1]


def change_chart(
    mended: Mapping[str, Sequence[Mapping[str, Any]]], order: Sequence[str]
) -> Figure | None:
    """How mending changed the distance from true neighborhoods, in percent."""
    rows = []
    for method, found in mended.items():
        each = [
            (f"run {k + 1}", 100 * (one["distance_mended"]["mean"] / plain - 1))
            for k, one in enumerate(found)
            if one["distance_plain"] and (plain := one["distance_plain"]["mean"])
        ]
        if each:
            middle = sum(value for _, value in each) / len(each)
            rows.append(Dots(method, method_color(order.index(method)), each, middle))
    if not rows:
        return None
    picture, axis = dot_chart(rows, "change of the distance by mending, %", zero=True,
                              signed=True)  # fmt: skip
    says = f"{better_or_worse(rows)} {axis}".strip()
    sheet: list[list[Value]] = [[one.name, *each] for one in rows for each in one.each]
    caption = "Did mending bring features closer to the truth?"
    data = Sheet(("method", "run", "change in percent"), sheet)
    return Figure(caption, picture, says, data, dot_keys(rows, "one seed"))


def better_or_worse(rows: Sequence[Dots]) -> str:
    """Plainly, whether mending helped the features of neighborhoods."""
    said = []
    for one in rows:
        if one.middle > 0.5:
            said.append(
                f"{one.name} made features worse: neighborhoods are {one.middle:.1f}% further "
                "from the truth than before mending."
            )
        elif one.middle < -0.5:
            said.append(
                f"{one.name} brought neighborhoods {-one.middle:.1f}% closer to the truth."
            )
        else:
            said.append(f"{one.name} left neighborhoods about as far from the truth as before.")
    return " ".join(said)


def counts_of(
    found: Sequence[Mapping[str, Any]],
) -> tuple[list[list[int]], list[str], list[str]]:
    """Nodes by missing and attached neighbors, summed over seeds; the last is "or more"."""
    tables = [one["counts"] for one in found if one["counts"]]
    counts = [[sum(c) for c in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]
    rows = max((r for r, row in enumerate(counts) if any(row)), default=0) + 1
    columns = max((c for row in counts for c, count in enumerate(row) if count), default=0) + 1
    table = [[0] * min(columns, MOST + 1) for _ in range(min(rows, MOST + 1))]
    for r, row in enumerate(counts[:rows]):
        for c, count in enumerate(row[:columns]):
            table[min(r, MOST)][min(c, MOST)] += count

    def names(size: int) -> list[str]:
        return [str(k) if k < MOST else f"{MOST}+" for k in range(min(size, MOST + 1))]

    return table, names(rows), names(columns)


def about_counts(found: Sequence[Mapping[str, Any]]) -> str:
    """Whether those nodes get neighbors that miss some."""
    generated, missing = (
        average([one[key] for one in found]) for key in ("generated", "missing")
    )
    related = average([one["count_correlation"] for one in found])
    much = (generated or 0) / (missing or 1)
    said = f"{much:.1f} neighbors are attached for each one that is missing."
    if related is None:
        return f"{said} Every node gets the same number, however many it misses."
    return f"{said} Correlation of the two counts over nodes: {related:.2f}."


def number(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"
