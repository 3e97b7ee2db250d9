"""The page: what the runs found, from the headline to the command that repeats them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from statistics import mean
from typing import Any

from fedsage.readable import all_phases, both_ways, owners_of, size, times_less
from fedsage.report.audited import audited
from fedsage.report.charts import bar_chart, legend
from fedsage.report.learned import confusions, curves, labels, mending
from fedsage.report.parts import figure, section, side_by_side, spread, table
from fedsage.report.read import Run, by_method

PHASES = ("load", "partition", "mending", "training", "evaluation")
TALKING = ("mending", "training")  # in other phases hardly anything is sent
WHOLE = "whole run"


def page(runs: Sequence[Run]) -> str:
    """One self-contained HTML file."""
    groups = by_method(runs)
    first = runs[0].result
    where = f"{first['dataset']}, {owners_of(first['owners'], first['partition'])}"
    sections = [headline(groups), curves(groups), owners(runs[0]), labels(groups),
                confusions(groups), mending(groups), absences(runs), audited(runs),
                costs(groups), repeat(runs)]  # fmt: skip
    body = "".join(section for section in sections if section)
    asset = files("fedsage.report").joinpath
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>fedsage: {escape(where)}</title>"
        f"<style>{asset('style.css').read_text(encoding='utf-8')}</style></head><body>"
        f"<h1>{escape(', '.join(groups))}</h1><p>{escape(where)}; "
        f"{size_text(first)}; preset {escape(first['preset'])}</p>{body}"
        '<div id="tip" role="status"></div>'
        f"<script>{asset('script.js').read_text(encoding='utf-8')}</script></body></html>\n"
    )


def size_text(result: Mapping[str, Any]) -> str:
    """The size of the graph, as far as it is known."""
    nodes = f"{result['graph']['nodes']:,} nodes"
    if is_federated(result):
        return f"{nodes}, each with its owner"
    links = f"{result['graph']['links']:,} links"
    return f"{nodes}, {links}, {missing_links_text(result)} missing between owners"


def is_federated(result: Mapping[str, Any]) -> bool:
    """Whether owners were on separate machines and reported only what they must."""
    return not any(one["labels"] for one in result["per_owner"])


def missing_links_text(result: Mapping[str, Any]) -> str:
    """The number of links missing between owners, if it is known."""
    missing = result["missing_links"]
    return "an unknown number" if missing is None else f"{missing:,}"


def headline(groups: Mapping[str, Sequence[Run]]) -> str:
    """Accuracy of every method."""

    def of(runs: Sequence[Run], get: Callable[[dict[str, Any]], Any]) -> list[Any]:
        return [get(run.result) for run in runs]

    rows = []
    for method, runs in groups.items():
        sent = carried(runs, WHOLE)
        rows.append(
            (
                method,
                str(len(runs)),
                spread(of(runs, lambda found: found["accuracy"]["global"])),
                spread(of(runs, lambda found: found["accuracy"]["local"])),
                spread(of(runs, lambda found: found["macro_f1"])),
                f"{mean(of(runs, lambda found: found['cpu_seconds'])):.1f} s",
                size(both_ways(sent)) if both_ways(sent) else "–",
                f"{max(of(runs, lambda found: found['peak_rss_mb'])):.0f} MB",
            )
        )
    columns = ("method", "seeds", "accuracy, global", "accuracy, local", "macro-F1",
               "CPU time", "traffic", "peak memory")  # fmt: skip
    note = (
        "global: test nodes queried on the whole graph; local: every owner's test nodes "
        "queried on what that owner holds. Mean ± standard deviation over seeds."
    )
    return section("Accuracy", note, table(columns, rows))


def owners(run: Run) -> str:
    """Sizes and labels of every owner."""
    lines = run.result["per_owner"]
    names = [owner_name(run, i) for i in range(len(lines))]
    if is_federated(run.result):
        few = [
            (name, f"{one['nodes']:,}", f"{one['test'] or 0:,}", spread([one["local"]]))
            for name, one in zip(names, lines, strict=True)
        ]  # fmt: skip
        note = "What owners told the server about themselves."
        return section("Owners", note, table(("owner", "nodes", "test nodes", "local"), few))
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
        f"Links missing between owners: {missing_links_text(run.result)}. Label skew: total "
        "variation from all owners' labels together, 0 to 1. For the first run."
    )
    key = legend(classes, [k % 8 for k in range(len(classes))], bars=True)
    return section(
        "Owners", note,
        side_by_side(figure("sizes", sizes, legend(["nodes", "links"], [0, 1], bars=True)),
                     figure("labels", shares, key)),
        table(columns, rows),
    )  # fmt: skip


def owner_name(run: Run, owner: int) -> str:
    """An owner's number as in the paper, and its name if it has one."""
    lines = run.result["per_owner"]
    name = lines[owner].get("name") if owner < len(lines) else None
    return f"D{owner} {name}" if name else f"D{owner}"


def absences(runs: Sequence[Run]) -> str:
    """Which rounds went on without which owner, and why."""
    rows = [
        (run.result["method"], line["phase"], str(line["round"] + 1),
         owner_name(run, miss["owner"]), miss["procedure"], miss["why"])
        for run in runs
        for line in run.history
        for miss in line.get("without", [])
    ]  # fmt: skip
    if not rows:
        return ""
    columns = ("method", "phase", "round", "without", "procedure", "why")
    note = "Owners that did not answer in time, or whose answer was refused."
    return section("Rounds without an owner", note, table(columns, rows))


def costs(groups: Mapping[str, Sequence[Run]]) -> str:
    """Seconds and traffic by phase."""
    names = list(groups)
    seconds = [
        (
            phase,
            [mean(run.result["seconds"][phase] for run in runs) for runs in groups.values()],
        )
        for phase in PHASES
    ]
    sent = [
        (f"{phase}, {way}", [carried(runs, phase)[way] / 1e6 for runs in groups.values()])
        for phase in TALKING
        for way in ("up", "down")
    ]
    time = bar_chart(names, seconds, "seconds", "s", stacked=True)
    amount = bar_chart(names, sent, "megabytes", "MB", stacked=True)
    return section(
        "Costs", "Means over seeds. Full messages: what traffic.how=full would have sent.",
        side_by_side(
            figure("seconds by phase", time, legend(PHASES, range(len(PHASES)), bars=True)),
            figure("megabytes by phase", amount,
                   legend([name for name, _ in sent], range(len(sent)), bars=True)),
        ),
        traffic_table(groups),
    )  # fmt: skip


def carried(runs: Sequence[Run], phase: str, key: str = "bytes") -> dict[str, float]:
    """Bytes up and down in a phase, or in all of them: means over seeds."""
    by_run = [run.result[key] for run in runs]
    each = [all_phases(found) if phase == WHOLE else found[phase] for found in by_run]
    return {way: mean(sent[way] for sent in each) for way in ("up", "down")}


def traffic_table(groups: Mapping[str, Sequence[Run]]) -> str:
    """Traffic by phase, up and down, and what full messages would have been."""
    rows = []
    for method, runs in groups.items():
        for phase in (*TALKING, WHOLE):
            sent, full = carried(runs, phase), carried(runs, phase, "bytes_full")
            if both_ways(sent):
                sizes = [size(found[way]) for found in (sent, full) for way in ("up", "down")]
                rows.append((method, phase, *sizes, times_less(sent, full) or "–"))
    columns = ("method", "phase", "traffic up", "traffic down",
               "full messages up", "full messages down", "traffic against full")  # fmt: skip
    return table(columns, rows) if rows else ""


def repeat(runs: Sequence[Run]) -> str:
    """The command, all settings and the versions of every run."""
    commands = dict.fromkeys(str(run.result.get("command")) for run in runs)
    parts = [f"<pre>{escape(chr(10).join(commands))}</pre>"]
    for run in runs:
        found = run.result
        title = f"{run.method}, seed {found['seed']}"
        made = {key: found.get(key) for key in ("versions", "commit", "machine")}
        parts.append(
            f"<details><summary>{escape(title)}</summary>"
            f"<pre>{escape(json.dumps(made, indent=1))}</pre>"
            f"<pre>{escape(json.dumps(found.get('config'), indent=1))}</pre></details>"
        )
    return section("Repeat it", "The command, versions and every setting.", *parts)
