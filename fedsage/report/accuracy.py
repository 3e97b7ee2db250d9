"""The first section: accuracy of every method, and how far methods differ, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsage.evaluation.paired import PairedDifference, baseline_of, paired_difference
from fedsage.paper import paper_accuracy
from fedsage.readable import both_ways, counted, size
from fedsage.report.blocks import (
    Block,
    Figure,
    Grid,
    Section,
    Sheet,
    Table,
    Value,
    average,
    deviation,
    listed,
    spread,
    titled,
)
from fedsage.report.costs import WHOLE, carried
from fedsage.report.dots import Dots, dot_chart, dot_keys
from fedsage.report.marks import method_color
from fedsage.report.read import Groups, Run

WAYS = {
    "global": "accuracy on the whole graph",
    "local": "accuracy on what each owner holds",
}


def accuracy(groups: Groups) -> Section:
    """Charts, the table, and paired differences."""
    charts = [chart for way in WAYS if (chart := accuracy_chart(groups, way))]
    blocks: list[Block] = [Grid(charts)] if charts else []
    blocks.append(headline(groups))
    measure = "global" if all(known(runs, "global") for runs in groups.values()) else "local"
    if differences := paired(groups, measure):
        blocks += differences_of(groups, measure, differences)
    note = (
        "Global: test nodes classified on the whole graph, as in the paper. Local: each "
        "owner's test nodes, classified on what that owner holds."
    )
    return Section("Accuracy", note, blocks)


def known(runs: Sequence[Run], way: str) -> list[tuple[int, float]]:
    """Seeds, and the accuracy on each of them."""
    each = [(run.result["seed"], run.result["accuracy"][way]) for run in runs]
    return [(seed, value) for seed, value in each if value is not None]


def paper_value(runs: Sequence[Run]) -> float | None:
    """The paper's accuracy for the same method, dataset and owners."""
    found = runs[0].result
    where = (found["dataset"], found["owners"], found["partition"])
    return paper_accuracy(found["method"], *where)


def accuracy_chart(groups: Groups, way: str) -> Figure | None:
    """Each seed, the mean, and the paper's value."""
    rows = []
    for k, (method, runs) in enumerate(groups.items()):
        if each := known(runs, way):
            values = [value for _, value in each]
            dots = [(f"seed {seed}", value) for seed, value in each]
            paper = paper_value(runs) if way == "global" else None
            middle = sum(values) / len(values)
            rows.append(Dots(method, method_color(k), dots, middle, paper=paper))
    if not rows:
        return None
    picture, axis = dot_chart(rows, WAYS[way])
    best = max(rows, key=lambda one: one.middle)
    leads = f"{best.name} has the highest mean, {best.middle:.4f}. " if len(rows) > 1 else ""
    columns = ("method", "of", "accuracy")
    sheet: list[list[Value]] = [[one.name, *each] for one in rows for each in one.each]
    sheet += [[one.name, "paper", one.paper] for one in rows if one.paper is not None]
    keys = dot_keys(rows, "one seed")
    says = f"{leads}{axis}"
    return Figure(titled(WAYS[way]), picture, says, Sheet(columns, sheet), keys)


def headline(groups: Groups) -> Table:
    """Accuracy, time, traffic and memory of every method."""
    rows, sheet = [], list[list[Value]]()
    for method, runs in groups.items():
        sent = carried(runs, WHOLE)
        found = [run.result for run in runs]
        accuracies: list[Sequence[float | None]] = [
            [one["accuracy"]["global"] for one in found],
            [one["accuracy"]["local"] for one in found],
            [one["macro_f1"] for one in found],
        ]
        paper = paper_value(runs)
        wall = average([one["seconds"]["total"] for one in found]) or 0.0
        cpu = average([one["cpu_seconds"] for one in found]) or 0.0
        memory = max(one["peak_rss_mb"] for one in found)
        rows.append(
            (method, str(len(runs)), *(spread(each) for each in accuracies),
             "–" if paper is None else f"{paper:.4f}", f"{wall:.1f} s", f"{cpu:.1f} s",
             size(both_ways(sent)) if both_ways(sent) else "none", f"{memory:.0f} MB")
        )  # fmt: skip
        both = [f(each) for each in accuracies for f in (average, deviation)]
        sheet.append([method, len(runs), *both, paper, wall, cpu, both_ways(sent), memory])
    columns = ("method", "seeds", "global accuracy", "local accuracy", "macro-F1",
               "the paper", "wall time", "CPU time", "traffic", "peak memory")  # fmt: skip
    names = ("global", "local", "macro_f1")
    raw = ("method", "seeds", *(f"{name}_{what}" for name in names for what in ("mean", "std")),
           "paper", "wall_seconds", "cpu_seconds", "bytes", "peak_mb")  # fmt: skip
    says = (
        "Mean ± standard deviation over seeds. Times and traffic are means per run; memory is "
        "the highest of all runs."
    )
    return Table("All methods", columns, rows, Sheet(raw, sheet), says)


def paired(groups: Groups, measure: str) -> dict[str, PairedDifference]:
    """Every other method minus the first federated one, on the seeds that both have."""
    first = baseline(groups)
    base = dict(known(groups[first], measure))
    found = {}
    for method, runs in groups.items():
        each = dict(known(runs, measure))
        seeds = [seed for seed in each if seed in base]
        if method != first and seeds:
            found[method] = paired_difference(
                [each[seed] for seed in seeds], [base[seed] for seed in seeds]
            )
    return found


def baseline(groups: Groups) -> str:
    """The first federated method."""
    return baseline_of(
        {method: both_ways(carried(runs, WHOLE)) for method, runs in groups.items()}
    )


def differences_of(
    groups: Groups, measure: str, found: Mapping[str, PairedDifference]
) -> list[Block]:
    """A chart and a table of paired differences."""
    first = baseline(groups)
    base, order = dict(known(groups[first], measure)), list(groups)
    base_paper = paper_value(groups[first])
    rows, cells, sheet = [], [], list[list[Value]]()
    for method, one in found.items():
        paper = paper_value(groups[method]) if measure == "global" else None
        printed = None if paper is None or base_paper is None else paper - base_paper
        each = [
            (f"seed {seed}", value - base[seed])
            for seed, value in known(groups[method], measure)
            if seed in base
        ]
        reach = None if one.low is None or one.high is None else (one.low, one.high)
        color = method_color(order.index(method))
        rows.append(Dots(method, color, each, one.mean, reach, printed))
        interval = "–" if reach is None else f"{reach[0]:+.4f} to {reach[1]:+.4f}"
        cells.append(
            (method, f"{one.mean:+.4f}", interval, str(one.pairs), verdict(one),
             "–" if printed is None else f"{printed:+.4f}")
        )  # fmt: skip
        sheet.append([method, one.mean, one.std_err, one.low, one.high, one.pairs, printed])
    picture, axis = dot_chart(rows, f"{measure} accuracy minus that of {first}", zero=True,
                              signed=True)  # fmt: skip
    raw = ("method", "difference", "std_err", "low", "high", "seeds", "paper_difference")
    data = Sheet(raw, sheet)
    columns = ("method", f"difference from {first}", "95% interval", "seeds", "reading",
               "the paper's difference")  # fmt: skip
    says = f"{in_words(found, first)} {axis}".strip()
    keys = dot_keys(rows, "one seed", "95% interval")
    caption = f"Paired differences from {first}"
    note = "Student's t on the differences of the same seeds, which share owners and nodes."
    return [
        Grid([Figure(caption, picture, says, data, keys)]),
        Table(caption, columns, cells, data, note),
    ]


def verdict(one: PairedDifference) -> str:
    """What an interval allows one to say."""
    if one.low is None:
        return "one seed: no interval"
    if not one.clear:
        return "no clear difference"
    return "higher" if one.mean > 0 else "lower"


def in_words(found: Mapping[str, PairedDifference], first: str) -> str:
    """Who is clearly better or worse than the baseline, and who is not."""
    said = []
    for words, start in (
        ("higher", f"Above {first}"),
        ("lower", f"Below {first}"),
        (
            "no clear difference",
            f"No clear difference from {first}, as the interval includes 0",
        ),
    ):
        if names := [method for method, one in found.items() if verdict(one) == words]:
            said.append(f"{start}: {listed(names)}.")
    if any(one.low is None for one in found.values()):
        said.append("One seed gives no interval: run several to tell methods apart.")
    return " ".join(said)


def lead(groups: Groups) -> str:
    """The page's first sentence: the result in words."""
    way = "global" if all(known(runs, "global") for runs in groups.values()) else "local"
    where = "on the whole graph" if way == "global" else "on what owners hold"
    means = {m: average([v for _, v in known(runs, way)]) for m, runs in groups.items()}
    each = [f"{method} {value:.4f}" for method, value in means.items() if value is not None]
    if not each:
        return "No run has test nodes."
    seeds = {run.result["seed"] for runs in groups.values() for run in runs}
    said = f"Accuracy {where}, {counted(len(seeds), 'seed')}: {', '.join(each)}."
    found = paired(groups, way)
    return f"{said} {in_words(found, baseline(groups))}" if found else said
