"""The page: what the runs found, from the headline to the command that repeats them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from statistics import mean, stdev
from typing import Any

from fedsage.report.charts import Line, bar_chart, heat_map, legend, line_chart
from fedsage.report.read import Run, by_method
from fedsage.wording import size

PHASES = ("load", "partition", "neighgen", "classifier", "evaluate")


def page(runs: Sequence[Run]) -> str:
    """One self-contained HTML file."""
    groups = by_method(runs)
    first = runs[0].result
    where = f"{first['dataset']}, {first['owners']} {first['partition']} owners"
    sections = [headline(groups), curves(groups), owners(runs[0]), labels(groups),
                confusions(groups), mending(groups), costs(groups), repeat(runs)]  # fmt: skip
    body = "".join(section for section in sections if section)
    asset = files("fedsage.report").joinpath
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>fedsage: {escape(where)}</title>"
        f"<style>{asset('style.css').read_text(encoding='utf-8')}</style></head><body>"
        f"<h1>{escape(', '.join(groups))}</h1><p>{escape(where)}; "
        f"{first['graph']['nodes']:,} nodes, {first['graph']['links']:,} links, "
        f"{first['missing_links']:,} of them missing between owners; preset "
        f"{escape(first['preset'])}</p>{body}"
        '<div id="tip" role="status"></div>'
        f"<script>{asset('script.js').read_text(encoding='utf-8')}</script></body></html>\n"
    )


def section(title: str, note: str, *inside: str) -> str:
    """A part of the page."""
    return f"<h2>{escape(title)}</h2><p>{escape(note)}</p>{''.join(inside)}"


def figure(caption: str, *inside: str) -> str:
    """A chart with its caption."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{''.join(inside)}</figure>"


def side_by_side(*figures: str) -> str:
    """Two columns where there is room."""
    return f'<div class="grid2">{"".join(figures)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls on a narrow screen."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    more = f" ± {stdev(known):.4f}" if len(known) > 1 else ""
    return f"{mean(known):.4f}{more}"


def headline(groups: Mapping[str, Sequence[Run]]) -> str:
    """Accuracy of every method."""

    def of(runs: Sequence[Run], get: Callable[[dict[str, Any]], Any]) -> list[Any]:
        return [get(run.result) for run in runs]

    rows = []
    for method, runs in groups.items():
        crossed = mean(
            sum(sum(both.values()) for both in run.result["bytes"].values()) for run in runs
        )
        rows.append(
            (
                method,
                str(len(runs)),
                spread(of(runs, lambda found: found["accuracy"]["global"])),
                spread(of(runs, lambda found: found["accuracy"]["local"])),
                spread(of(runs, lambda found: found["macro_f1"])),
                f"{mean(of(runs, lambda found: found['cpu_seconds'])):.1f} s",
                size(crossed) if crossed else "–",
                f"{max(of(runs, lambda found: found['peak_rss_mb'])):.0f} MB",
            )
        )
    columns = ("method", "seeds", "accuracy, global", "accuracy, local", "macro-F1",
               "CPU time", "bytes carried", "peak memory")  # fmt: skip
    note = (
        "global: test nodes queried on the whole graph; local: every owner's test nodes "
        "queried on what that owner holds. Mean ± standard deviation over seeds."
    )
    return section("Accuracy", note, table(columns, rows))


def curves(groups: Mapping[str, Sequence[Run]]) -> str:
    """Validation accuracy and loss over rounds."""
    wanted = (
        ("classifier", "validation", "accuracy on validation nodes"),
        ("classifier", "loss", "training loss of the classifier"),
        ("neighgen", "loss", "training loss of NeighGen"),
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
    note = "Mean over seeds; the band goes from the lowest to the highest of them."
    return section("Training", note, side_by_side(*figures)) if figures else ""


def curve(method: str, color: int, runs: Sequence[Run], phase: str, key: str) -> Line | None:
    """One method's curve; local models of one run are averaged first."""
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


def owners(run: Run) -> str:
    """Sizes and labels of every owner."""
    lines = run.result["per_owner"]
    names = [f"D{i}" for i in range(len(lines))]
    classes = run.result["class_names"]
    sizes = bar_chart(
        names,
        [
            ("nodes", [one["nodes"] for one in lines]),
            ("links", [one["links"] for one in lines]),
        ],
        "count",
    )
    stacks = [(c, [one["labels"][k] for one in lines]) for k, c in enumerate(classes)]
    shares = bar_chart(names, stacks, "labelled nodes", stacked=True)
    rows = [
        (name, f"{one['nodes']:,}", f"{one['links']:,}", f"{one['train']:,}",
         f"{one['test']:,}", f"{one['skew']:.2f}", spread([one["local"]]))
        for name, one in zip(names, lines, strict=True)
    ]  # fmt: skip
    columns = ("owner", "nodes", "links", "training nodes", "test nodes", "label skew", "local")
    note = (
        f"{run.result['missing_links']:,} links between owners are missing. Label skew: total "
        "variation from all owners' labels together, 0 to 1. Of the first run."
    )
    key = legend(classes, [k % 8 for k in range(len(classes))], bars=True)
    return section(
        "Owners", note,
        side_by_side(figure("sizes", sizes, legend(["nodes", "links"], [0, 1], bars=True)),
                     figure("labels", shares, key)),
        table(columns, rows),
    )  # fmt: skip


def labels(groups: Mapping[str, Sequence[Run]]) -> str:
    """Predicted against true shares of every class."""
    known = {m: runs for m, runs in groups.items() if runs[0].result["labels"] is not None}
    if not known:
        return ""
    classes = next(iter(known.values()))[0].result["class_names"]
    truth = [run.result["labels"]["true"] for runs in known.values() for run in runs]
    series = [("true", [mean(column) for column in zip(*truth, strict=True)])]
    for method, runs in known.items():
        shares = [run.result["labels"]["predicted"] for run in runs]
        series.append((method, [mean(column) for column in zip(*shares, strict=True)]))
    chart = bar_chart([short(name) for name in classes], series, "share of test nodes")
    keys = legend([name for name, _ in series], [k % 8 for k in range(len(series))], bars=True)
    note = "How often each class is predicted for test nodes, queried on the whole graph."
    return section("Labels", note, figure("true and predicted classes", chart, keys))


def confusions(groups: Mapping[str, Sequence[Run]]) -> str:
    """Which class is taken for which, summed over seeds."""
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
    note = "Test nodes of all seeds; the shade is the share of the row."
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
        "Of the first seed. L2: distance of the mean features of a node's neighbors from those "
        "on the whole graph, before and after mending. Ever nearest: share of all nodes that "
        "were ever the nearest to a generated neighbor."
    )
    return section("Mending", note, table(columns, rows), side_by_side(*maps))


def counts_map(counts: Sequence[Sequence[int]]) -> str:
    """Nodes by how many neighbors they miss and how many they got, without empty ends."""
    rows = max((r for r, row in enumerate(counts) if any(row)), default=0) + 1
    columns = max((c for row in counts for c, count in enumerate(row) if count), default=0) + 1
    cut = [list(row[:columns]) for row in counts[:rows]]
    return heat_map(
        cut, [str(r) for r in range(rows)], [str(c) for c in range(columns)], "missing",
        "attached",
    )  # fmt: skip


def costs(groups: Mapping[str, Sequence[Run]]) -> str:
    """Seconds and bytes by phase."""
    names = list(groups)
    seconds = [
        (
            phase,
            [mean(run.result["seconds"][phase] for run in runs) for runs in groups.values()],
        )
        for phase in PHASES
    ]
    carried = [
        (
            f"{phase}, {way}",
            [mean(run.result["bytes"][phase][way] for run in runs) / 1e6
             for runs in groups.values()],
        )
        for phase in ("neighgen", "classifier")
        for way in ("up", "down")
    ]  # fmt: skip
    time = bar_chart(names, seconds, "seconds", "s", stacked=True)
    amount = bar_chart(names, carried, "megabytes", "MB", stacked=True)
    return section(
        "Costs", "Means over seeds.",
        side_by_side(
            figure("seconds by phase", time, legend(PHASES, range(len(PHASES)), bars=True)),
            figure("megabytes by phase", amount,
                   legend([name for name, _ in carried], range(len(carried)), bars=True)),
        ),
    )  # fmt: skip


def repeat(runs: Sequence[Run]) -> str:
    """All settings, versions, and the command of every run."""
    parts = []
    for run in runs:
        found = run.result
        title = f"{run.method}, seed {found['seed']}"
        made = {key: found.get(key) for key in ("versions", "commit", "machine")}
        parts.append(
            f"<details><summary>{escape(title)}</summary>"
            f"<pre>{escape(str(found.get('command')))}</pre>"
            f"<pre>{escape(json.dumps(made, indent=1))}</pre>"
            f"<pre>{escape(json.dumps(found.get('config'), indent=1))}</pre></details>"
        )
    return section("Repeat it", "The command, versions and every setting.", *parts)


def short(name: str) -> str:
    """A class's name that fits under a bar."""
    return name if len(name) <= 16 else name[:15] + "…"
