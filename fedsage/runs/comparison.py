"""Several methods on the same seeds: means, paired differences, tables, the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedsage.config import Config
from fedsage.errors import ConfigError, optional
from fedsage.evaluation.evaluate import mean_and_std
from fedsage.evaluation.paired import CONFIDENCE, paired_difference
from fedsage.files import write_json
from fedsage.paper import paper_accuracy
from fedsage.readable import counted, html_table, owners_of
from fedsage.runs.record import OWN, RunRecord

Measure: TypeAlias = Literal["global", "local"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a method is above another one, seed by seed."""

    method: str
    against: str
    measure: Measure
    mean: float
    low: float | None  # the ends of the interval; none with a single seed
    high: float | None
    confidence: float
    each: list[float]  # one difference for each seed

    def __str__(self) -> str:
        """The mean and the interval."""
        if self.low is None or self.high is None:
            return f"{self.mean:+.4f}"
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Several methods, each run on the same seeds.

    Runs with the same seed have the same owners, the same training, validation and test nodes
    and the same first weights. So methods are compared by the differences within each seed.
    """

    records: dict[str, list[RunRecord]]  # by method; a record for each seed

    @property
    def methods(self) -> list[str]:
        """Their names, in the order given."""
        return list(self.records)

    @property
    def seeds(self) -> list[int]:
        """All of them."""
        return [record.seed for record in self.records[self.methods[0]]]

    @property
    def rows(self) -> list[Row]:
        """One row for each method: means, standard deviations, each value."""
        return [compared(records) for records in self.records.values()]

    @property
    def measure(self) -> Measure:
        """``global`` accuracy where it is known, else ``local``."""
        known = all(row.global_["mean"] is not None for row in self.rows)
        return "global" if known else "local"

    def differences(
        self,
        against: str | None = None,
        measure: Measure | None = None,
        confidence: float = CONFIDENCE,
    ) -> list[Difference]:
        """How far each other method is above ``against``, with an interval over seeds.

        The interval is Student's, for the mean of the paired differences.

        Args:
            against: The method to compare with; the first one if omitted.
            measure: ``global`` or ``local`` accuracy; :attr:`measure` if omitted.
            confidence: Of the interval, between 0 and 1.
        """
        base = against or self.methods[0]
        if base not in self.records:
            raise ConfigError(
                f"'{base}' was not compared. Choose one of {', '.join(self.methods)}."
            )
        if not 0 < confidence < 1:
            raise ConfigError(f"confidence is {confidence}. Give a number between 0 and 1.")
        chosen: Measure = measure or self.measure
        values = {name: self.values(name, chosen) for name in self.methods}
        found = []
        for name in self.methods:
            if name == base:
                continue
            gap = paired_difference(values[name], values[base], confidence)
            each = [a - b for a, b in zip(values[name], values[base], strict=True)]
            ends = gap.mean, gap.low, gap.high
            found.append(Difference(name, base, chosen, *ends, confidence, each))
        return found

    def values(self, method: str, measure: Measure) -> list[float]:
        """The accuracy of a method for each seed."""
        found = [record.accuracy[measure] for record in self.records[method]]
        if any(value is None for value in found):
            raise ConfigError(
                f"There is no {measure} accuracy of {method}. Pass evaluate_on=graph for the "
                "global one, and see that there are test nodes."
            )
        return [value for value in found if value is not None]

    def to_pandas(self, what: str = "methods") -> Any:
        """A ``DataFrame`` with a row for each of ``methods``, ``runs`` or ``differences``."""
        tables: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
            "methods": self.method_rows,
            "runs": self.run_rows,
            "differences": lambda: [asdict(one) for one in self.differences()],
        }
        if what not in tables:
            raise ConfigError(f"Unknown table '{what}'. Choose one of {', '.join(tables)}.")
        frame = optional("pandas", "to_pandas", "pandas").DataFrame
        return frame(list(tables[what]()))

    def method_rows(self) -> Iterator[dict[str, Any]]:
        """Each method flat, beside how far it is above the first one."""
        above = {one.method: one for one in self.differences()}
        for row in self.rows:
            one = above.get(row.method)
            yield {
                "method": row.method,
                "seeds": len(row.seeds),
                "global_mean": row.global_["mean"],
                "global_std": row.global_["std"],
                "local_mean": row.local["mean"],
                "local_std": row.local["std"],
                "difference": one.mean if one else None,
                "low": one.low if one else None,
                "high": one.high if one else None,
                "cpu_seconds": row.cpu_seconds,
            }

    def run_rows(self) -> Iterator[dict[str, Any]]:
        """Each run flat."""
        for records in self.records.values():
            for one in records:
                yield {
                    "method": one.method,
                    "seed": one.seed,
                    **one.accuracy,
                    "macro_f1": one.macro_f1,
                    "validation": one.validation,
                    "round": one.round,
                    "cpu_seconds": one.cpu_seconds,
                    "model_sha256": one.model_sha256,
                }

    def cells(self) -> tuple[str, list[str], list[list[str]]]:
        """What is shown: a caption, columns and rows of words."""
        first = self.records[self.methods[0]][0]
        who = owners_of(first.owners, first.partition)
        graph = f"{first.dataset}, " * (first.dataset != OWN)
        caption = f"{graph}{who}, {counted(len(self.seeds), 'seed')}"
        above = {one.method: str(one) for one in self.differences()}
        columns = ["method", "global", "local", f"{self.measure} − {self.methods[0]}"]
        rows = [
            [row.method, spread(row.global_), spread(row.local), above.get(row.method, "")]
            for row in self.rows
        ]
        return caption, columns, rows

    def __repr__(self) -> str:
        """A table of means, and of differences with 95% intervals."""
        caption, columns, rows = self.cells()
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in (columns, *rows)
        ]
        return "\n".join([f"Comparison: {caption}", *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return html_table(*self.cells())


def spread(summary: dict[str, Any]) -> str:
    """Mean and standard deviation."""
    if summary["mean"] is None:
        return "–"
    return f"{summary['mean']:.4f} ± {summary['std']:.4f}"


@dataclass(frozen=True, slots=True)
class Row:
    """One method over all seeds."""

    method: str
    dataset: str
    owners: int
    partition: str
    preset: str
    seeds: list[int]
    global_: dict[str, Any]  # mean, std, each
    local: dict[str, Any]
    cpu_seconds: float  # of one run, on average
    paper: float | None


def row_of(records: Sequence[Mapping[str, Any]], paper: float | None) -> Row:
    """Records of the same run on several seeds, as they stand in ``result.json``."""
    first = records[0]
    return Row(
        method=first["method"],
        dataset=first["dataset"],
        owners=first["owners"],
        partition=first["partition"],
        preset=first["preset"],
        seeds=[record["seed"] for record in records],
        global_=summary([record["accuracy"]["global"] for record in records]),
        local=summary([record["accuracy"]["local"] for record in records]),
        cpu_seconds=sum(record["cpu_seconds"] for record in records) / len(records),
        paper=paper,
    )


def summary(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean, standard deviation and each value."""
    each = [value for value in values if value is not None]
    if not each:
        return {"mean": None, "std": None, "each": []}
    mean, std = mean_and_std(each)
    return {"mean": mean, "std": std, "each": each}


def as_json(row: Row) -> dict[str, Any]:
    """A row under the names that users rely on."""
    return {key.rstrip("_"): value for key, value in asdict(row).items()}


def compare(
    config: Config,
    methods: Sequence[str],
    seeds: Sequence[int],
    run_one: Callable[[Config], RunRecord],
) -> list[Row]:
    """Run every method on every seed; all methods on one seed see the same owners and nodes."""
    records: dict[str, list[RunRecord]] = {method: [] for method in methods}
    for seed in seeds:
        for method in methods:
            chosen = config.run.model_copy(update={"method": method, "seed": seed})
            records[method].append(run_one(config.model_copy(update={"run": chosen})))
    return [compared(records[method]) for method in methods]


def compared(records: Sequence[RunRecord]) -> Row:
    """One method over all seeds, beside Table 2 of the paper."""
    first = records[0]
    paper = paper_accuracy(first.method, first.dataset, first.owners, first.partition)
    return row_of([asdict(record) for record in records], paper)


def comparison_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The object of ``compare --json``."""
    return {"rows": [as_json(row) for row in rows]}


def write_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Keep the comparison beside its runs."""
    write_json(folder / "compare.json", comparison_json(rows))
