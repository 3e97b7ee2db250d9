"""The arena's page of the report: ranks, accuracy, differences, curves, what others print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from fedsage.arena.contest import Ring
from fedsage.arena.hold import MEASURES, Standing, ranks
from fedsage.readable import counted, size
from fedsage.report.accuracy import WAYS
from fedsage.report.blocks import Block, Figure, Grid, Section, Sheet, Table, Value, titled
from fedsage.report.dots import Dots, dot_chart, dot_keys
from fedsage.report.lines import Curve, line_chart, line_sheet
from fedsage.report.marks import line_key, method_color
from fedsage.report.page import asset, template

Rows = Sequence[Mapping[str, Any]]
BAND = "Local accuracy; the band is one standard deviation over seeds."


def arena_page(standings: Sequence[Standing], rows: Rows, note: str, failed: Rows = ()) -> str:
    """One self-contained HTML file."""
    names = list(dict.fromkeys(one.who.name for one in standings))
    rings = list(dict.fromkeys(one.ring for one in standings))
    seeds = len(standings[0].records)
    sections = [rank_section(standings, names)]
    sections += [ring_section(ring, standings, rows) for ring in rings if not ring.stress]
    sections += stress_sections(standings, names) + skew_sections(standings, names)
    sections += printed_section(rows, note) + failed_section(failed)
    return str(
        template().render(
            title="; ".join(dict.fromkeys(ring.words for ring in rings if not ring.stress)),
            methods=[f"{counted(len(names), 'method')} in the arena"],
            lead=lead(standings),
            about=[
                ("seeds", str(seeds)),
                ("trials", f"{max(len(one.trials) for one in standings) or 1} for each method"),
                ("chosen by", "accuracy on validation nodes, on a seed of its own"),
            ],
            sections=sections,
            style=asset("style.css"),
            script=asset("script.js"),
        )
    )


def lead(standings: Sequence[Standing]) -> str:
    """Who has the best mean rank."""
    found = ranks([one for one in standings if not one.ring.stress], "local")
    if len(found) < 2:
        return "One method, so there is nobody to compare it with."
    order = sorted(found, key=lambda name: mean(rank for _, rank in found[name]))
    first, second = order[:2]
    return (
        f"At the owners, {first} has the best mean rank, "
        f"{mean(rank for _, rank in found[first]):.1f} of {len(found)}, then {second}. Ranks "
        "say nothing of how far apart methods are: see the differences."
    )


def rank_section(standings: Sequence[Standing], names: Sequence[str]) -> Section:
    """The mean rank of every method, a dot for each ring and seed."""
    figures = []
    for measure in MEASURES:
        found = ranks([one for one in standings if not one.ring.stress], measure)
        rows = [
            Dots(name, method_color(names.index(name)), each, mean(rank for _, rank in each))
            for name, each in found.items()
        ]
        rows.sort(key=lambda one: one.middle)
        if not rows:
            continue
        picture, axis = dot_chart(rows, f"rank by {WAYS[measure]}")
        sheet: list[list[Value]] = [[one.name, *each] for one in rows for each in one.each]
        figures.append(
            Figure(titled(f"rank by {WAYS[measure]}"), picture, axis,
                   Sheet(("method", "where", "rank"), sheet), dot_keys(rows, "one seed"))
        )  # fmt: skip
    note = (
        "Rank 1 is the best. Every method has the better of its two treatments of the "
        "optimizer's state, by validation nodes."
    )
    return Section("Ranks", note, [Grid(figures)] if figures else [])


def ring_section(ring: Ring, standings: Sequence[Standing], rows: Rows) -> Section:
    """All methods on one ring: a chart, four measures, differences and costs."""
    pairs = [(one, row) for one, row in zip(standings, rows, strict=True) if one.ring == ring]
    charts = []
    for measure in MEASURES:
        dots = [
            Dots(
                label_of(one), method_color(k // 2),
                [(f"seed {r['seed']}", r["accuracy"][measure]) for r in one.records],
                mean(one.values(measure)),
            )
            for k, (one, _) in enumerate(pairs)
            if one.values(measure)
        ]  # fmt: skip
        if dots:
            picture, axis = dot_chart(dots, WAYS[measure])
            sheet: list[list[Value]] = [[d.name, *each] for d in dots for each in d.each]
            data = Sheet(("method", "of", "accuracy"), sheet)
            charts.append(
                Figure(titled(WAYS[measure]), picture, axis, data, dot_keys(dots, "one seed"))
            )
    columns = (
        "method", "state", "shared, whole graph", "shared, own graph", "own, whole graph",
        "own, own graph", "difference, global", "difference, local", "CPU time", "traffic",
        "memory",
    )  # fmt: skip
    both = [(model, measure) for model in ("shared", "own") for measure in MEASURES]
    cells = [
        (one.who.name, one.moments,
         *(spread_of(row[model][measure]) for model, measure in both),
         gap(row, "global"), gap(row, "local"), f"{row['cpu_seconds']:.1f} s",
         size(row["bytes"]) if row["bytes"] else "none", f"{row['peak_rss_mb']:.0f} MB")
        for one, row in pairs
    ]  # fmt: skip
    says = (
        f"Differences are from {pairs[0][0].who.name}, seed by seed, with 95% intervals. "
        "State: what becomes of the optimizer's between rounds. The own model of a method that "
        "shares one is that model after another round at home."
    )
    blocks: list[Block] = [Grid(charts)] if charts else []
    blocks.append(Table("All methods", columns, cells, None, says))
    return Section(ring.words, settings_text(pairs), blocks)


def settings_text(pairs: Sequence[tuple[Standing, Mapping[str, Any]]]) -> str:
    """What was chosen for whom, where it is not what is usual."""
    told = [
        f"{label_of(one)}: {in_words(one.point)}"
        for one, _ in pairs
        if one.trials and one.point != one.trials[0]["settings"]
    ]
    return "Chosen other than usual. " + "; ".join(told) + "." if told else "Usual settings."


def label_of(one: Standing) -> str:
    """An entrant with its column."""
    return one.who.name if len(one.who.columns) == 1 else f"{one.who.name}, {one.moments}"


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings, without their sections where that is clear: ``mu=0.01, eta=0.003``."""
    short = {key: key.rpartition(".")[2] for key in settings}
    ends = list(short.values())
    named = {end if ends.count(end) == 1 else key: settings[key] for key, end in short.items()}
    return ", ".join(f"{key}={told(value)}" for key, value in named.items())


def told(value: object) -> str:
    """A setting's value, as one writes it."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def spread_of(held: Mapping[str, Any]) -> str:
    """Mean and standard deviation in percent."""
    if held["mean"] is None:
        return "–"
    more = f" ± {100 * held['std']:.1f}" if len(held["each"]) > 1 else ""
    return f"{100 * held['mean']:.1f}{more}"


def gap(row: Mapping[str, Any], measure: str) -> str:
    """A paired difference in points."""
    held = row["differences"][measure]
    if held is None:
        return "–"
    if held["low"] is None:
        return f"{100 * held['mean']:+.1f}"
    return f"{100 * held['mean']:+.1f} [{100 * held['low']:+.1f}, {100 * held['high']:+.1f}]"


def stress_sections(standings: Sequence[Standing], names: Sequence[str]) -> list[Section]:
    """A curve for every method over each knob that was turned."""
    knobs = dict.fromkeys(knob for one in standings for knob, _ in one.ring.stress)
    found = []
    for knob in knobs:
        figures = []
        turned = [one for one in standings if [k for k, _ in one.ring.stress] in ([], [knob])]
        calm = dict.fromkeys(plain(one.ring) for one in turned)
        for place in calm:
            here = [one for one in turned if plain(one.ring) == place]
            label = f"{knob.replace('_', ' ')}, percent"
            figures += curves_over(here, names, share_lost, place.words, label)
        found.append(Section(titled(knob.replace("_", " ")), BAND, [Grid(figures)]))
    return found


def skew_sections(standings: Sequence[Standing], names: Sequence[str]) -> list[Section]:
    """A curve for every method over β of owners cut by ``label:β``, if there are several."""
    skewed = [one for one in standings if one.ring.partition.startswith("label:")]
    calm = [one for one in skewed if not one.ring.stress]
    figures = []
    for place in dict.fromkeys(replace(one.ring, partition="label") for one in calm):
        here = [one for one in calm if replace(one.ring, partition="label") == place]
        figures += curves_over(here, names, hundred_beta, place.words, "100 β")
    note = f"The smaller β is, the more do owners' labels differ. {BAND}"
    return [Section("Label skew", note, [Grid(figures)])] if figures else []


def share_lost(ring: Ring) -> int:
    """How far its knob was turned, in percent."""
    return round(100 * sum(share for _, share in ring.stress))


def hundred_beta(ring: Ring) -> int:
    """A hundred times the β of its partition ``label:β``."""
    return round(100 * float(ring.partition.partition(":")[2]))


def curves_over(
    here: Sequence[Standing],
    names: Sequence[str],
    level: Callable[[Ring], int],
    title: str,
    label: str,
) -> list[Figure]:
    """One picture with a curve for every method, if any has two levels."""
    curves = [c for k, name in enumerate(names) if (c := curve(here, name, k, level))]
    if not curves:
        return []
    picture, axis = line_chart(curves, label, "local accuracy", cuts=False)
    keys = [line_key(one.name, one.color) for one in curves]
    return [Figure(title, picture, axis, line_sheet(curves, label), keys)]


def plain(ring: Ring) -> Ring:
    """The ring without stress."""
    return Ring(ring.dataset, ring.owners, ring.partition, ring.split)


def curve(
    here: Sequence[Standing], name: str, k: int, level: Callable[[Ring], int]
) -> Curve | None:
    """One method over levels, with the optimizer's state averaged where it can be."""
    mine = [one for one in here if one.who.name == name and one.moments == one.who.columns[0]]
    held = {level(one.ring): one.values("local") for one in mine}
    if len(held) < 2:
        return None
    x = sorted(held)
    middle = [mean(held[one]) for one in x]
    off = [stdev(held[one]) if len(held[one]) > 1 else 0.0 for one in x]
    low, high = ([m + s * d for m, d in zip(middle, off, strict=True)] for s in (-1, 1))
    return Curve(name, method_color(k), x, middle, low, high)


def printed_section(rows: Rows, note: str) -> list[Section]:
    """Printed numbers beside ours."""
    cells = [
        (row["method"], row["moments"], row["dataset"], str(row["owners"]),
         spread_of(row["local"]), f"{100 * held['low']:.1f}–{100 * held['high']:.1f}",
         held["from"])
        for row in rows
        if (held := row["printed"])
    ]  # fmt: skip
    if not cells:
        return []
    columns = ("method", "state", "graph", "owners", "here, local", "printed", "where")
    return [Section("Printed numbers", note, [Table("Beside ours", columns, cells)])]


def failed_section(failed: Rows) -> list[Section]:
    """Runs that failed by themselves: they count nowhere else on the page."""
    if not failed:
        return []
    columns = ("method", "moments", "dataset", "M", "partition", "seed", "why")
    titles = ("method", "state", "graph", "owners", "cut", "seed", "why")
    cells = [tuple(str(one[key]) for key in columns) for one in failed]
    says = "These runs did not reach their end. They count nowhere else on this page."
    return [Section("Did not end", says, [Table("Why", titles, cells)])]


def words_of(standings: Sequence[Standing]) -> str:
    """How large a contest is."""
    return counted(sum(len(one.records) for one in standings), "run")
