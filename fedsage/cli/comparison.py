"""A comparison on the terminal: accuracy, paired differences, traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedsage.cli.output import accuracy_text, print_table
from fedsage.readable import all_phases, both_ways, counted, size

if TYPE_CHECKING:
    from fedsage.evaluation.paired import PairedDifference
    from fedsage.runs.comparison import Row
    from fedsage.runs.record import RunRecord


@dataclass(frozen=True, slots=True)
class Against:
    """How methods differ from one of them, seed by seed."""

    baseline: str
    of: str  # accuracy: global, or local where nobody holds the whole graph
    differences: dict[str, PairedDifference]


def traffic_per_run(records: Sequence[RunRecord]) -> dict[str, dict[str, float]]:
    """Bytes up and down of each method, as means over its runs."""
    found: dict[str, list[dict[str, float]]] = {}
    for record in records:
        found.setdefault(record.method, []).append(all_phases(record.bytes))
    return {
        method: {way: sum(one[way] for one in each) / len(each) for way in ("up", "down")}
        for method, each in found.items()
    }


def against_baseline(
    rows: Sequence[Row], sent: Mapping[str, Mapping[str, float]]
) -> Against | None:
    """Paired differences to the first federated method; nothing for a single method."""
    from fedsage.evaluation.paired import baseline_of, paired_difference

    first = baseline_of({row.method: both_ways(sent[row.method]) for row in rows})
    of = "global" if all(row.global_["each"] for row in rows) else "local"
    each = {row.method: (row.global_ if of == "global" else row.local)["each"] for row in rows}
    if len({len(values) for values in each.values()}) > 1 or not each[first]:
        return None  # some seed has no test nodes
    others = [row.method for row in rows if row.method != first]
    if not others:
        return None
    return Against(
        first, of, {name: paired_difference(each[name], each[first]) for name in others}
    )


def as_json(
    found: Against | None, sent: Mapping[str, Mapping[str, float]]
) -> dict[str, list[dict[str, Any]]]:
    """What ``compare --json`` adds to its rows."""
    traffic: list[dict[str, Any]] = [
        {"method": name} | dict(ways) for name, ways in sent.items()
    ]
    if found is None:
        return {"differences": [], "traffic": traffic}
    about = {"baseline": found.baseline, "of": found.of}
    each = found.differences.items()
    differences = [{"method": name} | about | asdict(one) for name, one in each]
    return {"differences": differences, "traffic": traffic}


def print_comparison(
    title: str, rows: Sequence[Row], sent: Mapping[str, Mapping[str, float]]
) -> None:
    """Accuracy of all methods; below it how they differ, and what they send."""
    cells = [
        (row.method, mean_and_spread(row.global_), mean_and_spread(row.local),
         accuracy_text(row.paper), f"{row.cpu_seconds:.1f} s")
        for row in rows
    ]  # fmt: skip
    print_table(title, ("method", "global", "local", "paper", "CPU time per run"), cells)
    found = against_baseline(rows, sent)
    paired = [
        (row.method, *difference_cells(row.method, found), *traffic_cells(sent[row.method]))
        for row in rows
    ]
    columns = ("method", "difference", "95% interval", "sent up", "sent down")
    print_table(title_of_differences(found, len(rows[0].seeds)), columns, paired)


def title_of_differences(found: Against | None, seeds: int) -> str:
    """What the second table shows."""
    if found is None:
        return "traffic per run"
    pairs = "on one seed" if seeds == 1 else f"paired over {counted(seeds, 'seed')}"
    return f"{found.of} accuracy minus that of {found.baseline}, {pairs}; traffic per run"


def difference_cells(method: str, found: Against | None) -> tuple[str, str]:
    """A method's difference to the baseline, and its interval."""
    if found is None or method == found.baseline:
        return ("–", "–")
    one = found.differences[method]
    interval = "–" if one.low is None else f"{one.low:+.4f} to {one.high:+.4f}"
    return (f"{one.mean:+.4f}", interval)


def traffic_cells(sent: Mapping[str, float]) -> tuple[str, str]:
    """Bytes up and down."""
    if not both_ways(sent):
        return ("nothing", "nothing")
    return (size(sent["up"]), size(sent["down"]))


def mean_and_spread(values: Mapping[str, Any]) -> str:
    """Mean and standard deviation; a single value by itself."""
    if len(values["each"]) < 2:
        return accuracy_text(values["mean"])
    return f"{values['mean']:.4f} ± {values['std']:.4f}"
