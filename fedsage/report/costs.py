"""The section on costs: time and traffic by phase."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from fedsage.readable import all_phases, both_ways, size, times_less
from fedsage.report.bars import Series, bar_chart, bar_sheet
from fedsage.report.blocks import Block, Figure, Grid, Section, Sheet, Table, Value, listed
from fedsage.report.marks import bar_key
from fedsage.report.read import Groups, Run

PHASES = ("load", "partition", "mending", "training", "evaluation")
TALKING = ("mending", "training")  # in other phases hardly anything is sent
WHOLE = "whole run"


def costs(groups: Groups) -> Section:
    """Wall time, CPU time and traffic, as means over seeds."""
    figures = [
        time_chart(groups, "seconds", "Wall time by phase", "seconds of wall time"),
        time_chart(groups, "cpu_seconds_by_phase", "CPU time by phase", "seconds of CPU time"),
    ]
    figures += traffic_chart(groups)
    blocks: list[Block] = [Grid(figures)]
    if table := traffic_table(groups):
        blocks.append(table)
    note = (
        "Means over seeds. Wall time is the time that passed; CPU time is how long the "
        "processor worked, over all threads. Other programs on the machine add to wall time."
    )
    return Section("Costs", note, blocks)


def time_chart(groups: Groups, key: str, caption: str, axis: str) -> Figure:
    """Seconds by phase, stacked."""
    names = list(groups)
    series = [
        Series(phase, f"q{k}", [mean(r.result[key].get(phase, 0.0) for r in runs)
                                for runs in groups.values()])
        for k, phase in enumerate(PHASES)
    ]  # fmt: skip
    drawn = [one for one in series if any(one.values)]
    totals = {name: sum(one.values[g] for one in series) for g, name in enumerate(names)}
    slowest = max(totals, key=lambda name: totals[name])
    most = max(series, key=lambda one: one.values[names.index(slowest)])
    share = most.values[names.index(slowest)] / (totals[slowest] or 1)
    says = (
        f"{slowest} takes longest, {totals[slowest]:.1f} s, of which {100 * share:.0f}% is "
        f"{most.name}."
        if len(names) > 1
        else f"{totals[slowest]:.1f} s in all, of which {100 * share:.0f}% is {most.name}."
    )
    keys = [bar_key(one.name, one.color) for one in drawn]
    picture = bar_chart(names, drawn, axis, "s", stacked=True)
    return Figure(caption, picture, says, bar_sheet("method", names, drawn), keys)


def traffic_chart(groups: Groups) -> list[Figure]:
    """Megabytes by phase and direction, stacked; none where nothing was sent."""
    talking = {m: runs for m, runs in groups.items() if both_ways(carried(runs, WHOLE))}
    if not talking:
        return []
    names = list(talking)
    series = [
        Series(f"{phase}, {way}", f"q{k}",
               [carried(runs, phase)[way] / 1e6 for runs in talking.values()])
        for k, (phase, way) in enumerate((p, w) for p in TALKING for w in ("up", "down"))
    ]  # fmt: skip
    drawn = [one for one in series if any(one.values)]
    silent = [name for name in groups if name not in talking]
    quiet = f" Nothing is sent by {listed(silent)}." if silent else ""
    less = [times_less(carried(runs, WHOLE), carried(runs, WHOLE, "bytes_full"))
            for runs in talking.values()]  # fmt: skip
    saved = [f"{name} {words}" for name, words in zip(names, less, strict=True) if words]
    against = f"Against full messages: {', '.join(saved)}." if saved else ""
    says = f"{against}{quiet}".strip() or "Messages were sent in full."
    keys = [bar_key(one.name, one.color) for one in drawn]
    picture = bar_chart(names, drawn, "megabytes", "MB", stacked=True)
    return [Figure("Traffic by phase", picture, says, bar_sheet("method", names, drawn), keys)]


def carried(runs: Sequence[Run], phase: str, key: str = "bytes") -> dict[str, float]:
    """Bytes up and down in a phase, or in all of them: means over seeds."""
    by_run = [run.result[key] for run in runs]
    each = [all_phases(found) if phase == WHOLE else found[phase] for found in by_run]
    return {way: mean(sent[way] for sent in each) for way in ("up", "down")}


def traffic_table(groups: Groups) -> Table | None:
    """Traffic by phase, up and down, and what full messages would have been."""
    rows, sheet = [], list[list[Value]]()
    for method, runs in groups.items():
        for phase in (*TALKING, WHOLE):
            sent, full = carried(runs, phase), carried(runs, phase, "bytes_full")
            if both_ways(sent):
                each = [found[way] for found in (sent, full) for way in ("up", "down")]
                sizes = [size(one) for one in each]
                rows.append((method, phase, *sizes, times_less(sent, full) or "–"))
                sheet.append([method, phase, *each])
    columns = ("method", "phase", "traffic up", "traffic down",
               "full messages up", "full messages down", "traffic against full")  # fmt: skip
    raw = ("method", "phase", "up", "down", "full_up", "full_down")
    says = "Full messages: what traffic.how=full would have sent."
    return Table("Traffic", columns, rows, Sheet(raw, sheet), says) if rows else None
