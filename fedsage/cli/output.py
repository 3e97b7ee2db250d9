"""Tables on stdout, and on stderr everything that is wrong with a user's tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from fedsage.errors import DataErrors
from fedsage.readable import all_phases, both_ways, counted, owners_of, times_less, traffic

if TYPE_CHECKING:
    from fedsage.graph.graph import Graph
    from fedsage.graph.partition import Partition
    from fedsage.runs.record import RunRecord


VIEWS = {"both": "plain and mended", "mixed": "plain or mended"}


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON object on stdout."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; the first column is text, which may wrap, the others are numbers.

    Without headings it is a list of names and values, of which the values may wrap.
    """
    table = Table(show_header=any(columns))
    for i, column in enumerate(columns):
        whole = i > 0 if any(columns) else i == 0
        side: JustifyMethod = "right" if i else "left"
        table.add_column(column, justify=side, no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    narrow = None if sys.stdout.isatty() else 120
    console = Console(width=narrow, highlight=False)
    console.print(title, style="bold", markup=False)
    console.print(table)


def print_words(title: str, rows: Mapping[str, str]) -> None:
    """Names, and what each of them is."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, words in rows.items():
        table.add_row(f"  {name}", Text(words))
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(title, style="bold", markup=False)
    console.print(table)


def accuracy_text(value: float | None) -> str:
    """An accuracy."""
    return "–" if value is None else f"{value:.4f}"


def calibration_text(record: RunRecord) -> str:
    """The calibration error, and what chance alone would make it."""
    chance = record.calibration_error_by_chance
    beside = "" if chance is None else f" (by chance alone {chance:.4f})"
    return f"{accuracy_text(record.calibration_error)}{beside}"


def print_run(record: RunRecord) -> None:
    """The result of one run."""
    from fedsage.runs.record import OWN

    rows = [
        ("accuracy, global", accuracy_text(record.accuracy["global"])),
        ("accuracy, local", accuracy_text(record.accuracy["local"])),
        *before_rows(record),
        ("macro-F1", accuracy_text(record.macro_f1)),
        ("balanced accuracy", accuracy_text(record.balanced_accuracy)),
        ("calibration error", calibration_text(record)),
        *([("form of features", record.feature_form)] * (record.feature_form != "raw")),
        ("round kept", round_text(record)),
        *mending_rows(record),
        *traffic_rows(record.bytes, record.bytes_full),
        *privacy_rows(record),
        ("wall time", f"{record.seconds['total']:.1f} s"),
        ("CPU time", f"{record.cpu_seconds:.1f} s"),
        ("peak memory", f"{record.peak_rss_mb:.0f} MB"),
    ]
    graph = "" if record.dataset == OWN else f" on {record.dataset}"  # each owner's own
    who = owners_of(record.owners, record.partition)
    print_table(f"{record.method}{graph}, {who}, seed {record.seed}", ("", ""), rows)
    if record.privacy["level"] == "private":
        print(PROTECTS)
    if record.out:
        print(f"Written to {record.out}")
    warn(record)


def before_rows(record: RunRecord) -> list[tuple[str, str]]:
    """How the classifier that the run began with does on the same test nodes."""
    before = record.accuracy_before or {}
    return [
        (f"before this run, {way}", accuracy_text(value))
        for way, value in before.items()
        if value is not None
    ]


PROTECTS = (
    "ε bounds what the model and all that was sent tell about one node: its features, its "
    "label and its links.\nIt holds against the server together with a third of the owners, "
    "and against whoever gets the model.\nIt does not cover what owners answer at home, the "
    "schema, who takes part, or how long it takes."
)


def round_text(record: RunRecord) -> str:
    """The round whose classifier was kept, and how good it was on validation nodes."""
    if record.privacy["level"] == "private":
        return "mean of the last half"
    return f"{record.round + 1} (validation {record.validation:.4f})"


def privacy_rows(record: RunRecord) -> list[tuple[str, str]]:
    """Who saw what."""
    level = record.privacy["level"]
    saw = {"sums": "only sums over owners", "private": "only noisy sums over owners"}
    rows = [("the server saw", saw[str(level)])] if level in saw else []
    if level == "private":
        cost = f"ε = {record.privacy['epsilon']:g}, δ = {record.privacy['delta']:g}"
        rows.append(("for every node", cost))
    return rows


def warn(record: RunRecord) -> None:
    """What a reader of the result should know, on stderr."""
    for words in record.warnings:
        print(f"Warning: {words}", file=sys.stderr)


def traffic_rows(
    sent: Mapping[str, Mapping[str, float]], full: Mapping[str, Mapping[str, float]]
) -> list[tuple[str, str]]:
    """Traffic up and down by phase, and how much less it is than with full messages."""
    rows = {phase: (sent[phase], full[phase]) for phase in sent if both_ways(sent[phase])}
    if not rows:
        return [("traffic", "none: nothing left an owner")]
    rows["whole run"] = all_phases(sent), all_phases(full)
    return [(f"traffic, {name}", less_than_full(*both)) for name, both in rows.items()]


def less_than_full(sent: Mapping[str, float], full: Mapping[str, float]) -> str:
    """Traffic up and down, beside what full messages would have been."""
    less = times_less(sent, full)
    return f"{traffic(sent, sent)}{less and f', {less} than full messages'}"


def mending_rows(record: RunRecord) -> list[tuple[str, str]]:
    """What was attached, where something was."""
    found = record.mending
    if found is None:
        return []
    truth = "" if found.missing is None else f" ({found.missing:,} really missing)"
    return [
        ("neighbors attached", f"{found.generated:,}{truth}"),
        ("graph queried", VIEWS.get(record.view, record.view)),
    ]


def print_graph(name: str, graph: Graph) -> None:
    """A graph at a glance."""
    from fedsage.graph.partition import label_counts

    degrees = graph.degrees
    filled = graph.x.nnz if hasattr(graph.x, "nnz") else graph.x.size
    cells = graph.num_nodes * graph.num_features
    rows = [
        ("nodes", f"{graph.num_nodes:,}"),
        ("links", f"{graph.num_links:,}"),
        ("neighbors: mean, most", f"{degrees.mean():.2f}, {degrees.max():,}"),
        ("nodes without a link", f"{int((degrees == 0).sum()):,}"),
        ("features", f"{graph.num_features:,} ({100 * filled / cells:.2g}% filled)"),
        ("unlabelled nodes", f"{int((graph.y < 0).sum()):,}"),
    ]
    counts = label_counts(graph)
    rows += [(f"class {c}", f"{n:,}") for c, n in zip(graph.class_names, counts, strict=True)]
    print_table(name, ("", ""), rows)


def print_owners(name: str, graph: Graph, part: Partition) -> None:
    """|V_i|, |E_i|, label skew of every owner, and ΔE."""
    from fedsage.graph.partition import label_counts, label_skew_of

    rows = []
    for i, (one, skew) in enumerate(zip(part.subgraphs, label_skew_of(part), strict=True)):
        counts = label_counts(one)
        top = int(counts.argmax())
        most = f"{one.class_names[top]} {100 * counts[top] / max(counts.sum(), 1):.0f}%"
        rows.append((str(i), f"{one.num_nodes:,}", f"{one.num_links:,}", f"{skew:.2f}", most))
    columns = ("owner", "|V_i|", "|E_i|", "label skew", "most frequent class")
    print_table(
        f"{name}: {owners_of(part.num_owners, part.how)}, seed {part.seed}", columns, rows
    )
    sizes = [one.num_nodes for one in part.subgraphs]
    missing = part.missing_links or 0
    print(
        f"ΔE: {missing:,} of {counted(graph.num_links, 'link')} "
        f"({100 * missing / max(graph.num_links, 1):.1f}%) are missing between owners. The "
        f"largest owner has {max(sizes) * len(sizes) / sum(sizes):.2f} times the mean number "
        "of nodes. Label skew is the distance from all labels taken together, from 0 to 1."
    )


@contextmanager
def every_problem() -> Iterator[None]:
    """List all problems of tables, where other commands name the first; exit code 2."""
    try:
        yield
    except DataErrors as errors:
        print(f"Error: {errors}", file=sys.stderr)
        raise typer.Exit(2) from None
