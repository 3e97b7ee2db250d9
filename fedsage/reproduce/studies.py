"""The tables and figures of the paper, by name: the runs each needs, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, TypeAlias

from fedsage.config import load_config
from fedsage.data.load import load
from fedsage.graph.partition import partition
from fedsage.paper import paper_values
from fedsage.presets import Settings
from fedsage.reproduce.cells import Cell, FinishedCell, Labels, grouped
from fedsage.reproduce.figures import Panel
from fedsage.reproduce.tables import Table, TableRow, beside_paper, paired_difference

PAPER_DATASETS = ("cora", "citeseer", "pubmed", "msacademic")
NAMES = {  # as the paper writes them, for figures
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "msacademic": "MSAcademic",
    "globsage": "GlobSage",
    "locsage": "LocSage",
    "locsage+": "LocSage+",
    "fedsage": "FedSage",
    "fedsage+": "FedSage+",
}
PAPER_METHODS = ("globsage", "locsage", "locsage+", "fedsage", "fedsage+")
QUICK: Settings = {"classifier": {"rounds_c": 8}, "neighgen": {"rounds_gen": 4}}
RunCells: TypeAlias = Callable[[Sequence[Cell]], list[FinishedCell]]
Printed: TypeAlias = Callable[[Labels], Sequence[float] | None]  # accuracy, spread


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a study."""

    preset: str = "paper"
    seeds: int = 5
    quick: bool = False  # one seed, few rounds, Cora instead of larger graphs
    datasets: tuple[str, ...] = PAPER_DATASETS
    owners: tuple[int, ...] = (3, 5, 10)

    def of(self, *datasets: str) -> tuple[str, ...]:
        """The datasets to run if the paper has ``datasets``."""
        return ("cora",) if self.quick else tuple(d for d in datasets if d in self.datasets)

    @property
    def num_owners(self) -> tuple[int, ...]:
        """M."""
        return (3,) if self.quick else self.owners

    @property
    def all_seeds(self) -> range:
        """The seeds, from zero."""
        return range(1 if self.quick else self.seeds)


def no_such_cell(labels: Labels) -> Sequence[float] | None:
    """For studies whose accuracies the paper does not print."""
    return None


@dataclass(frozen=True, slots=True)
class StudyOutput:
    """What a study shows."""

    tables: list[Table]
    panels: list[Panel] = field(default_factory=list)
    paper: Printed = no_such_cell  # the accuracy that the paper prints for a run


def cells_by_seed(
    options: Options, labels: Labels, method: str, dataset: str, owners: int, **sections: Any
) -> list[Cell]:
    """One cell for every seed."""
    made = []
    for seed in options.all_seeds:
        config = load_config(
            QUICK if options.quick else {},
            sections,
            {"run": {"method": method, "seed": seed}},
            {"data": {"dataset": dataset, "owners": owners}},
            preset=options.preset,
        )
        made.append(Cell(labels, config))
    return made


def accuracies(done: Iterable[FinishedCell], queries: str = "global") -> dict[int, float]:
    """Accuracy by seed, queried on the whole graph or on each owner's own."""
    return {one.seed: float(one.record["accuracy"][queries]) for one in done}


def accuracy_rows(
    done: Sequence[FinishedCell], paper: Printed = no_such_cell
) -> list[TableRow]:
    """A row for every group of cells, with the paper's value."""
    return [
        labels
        | beside_paper(list(accuracies(group).values()), paper(labels))
        | {"local": mean(accuracies(group, "local").values())}
        for labels, group in grouped(done)
    ]


def table_datasets(options: Options, run: RunCells) -> StudyOutput:
    """Table 1: sizes of owners and missing links."""
    values = paper_values()["table-datasets"]
    rows = []
    for dataset in options.of(*PAPER_DATASETS):
        graph = load(dataset)
        for owners in options.num_owners:
            parts = [partition(graph, owners, "louvain", seed) for seed in options.all_seeds]
            k = values["owners"].index(owners)
            found = {
                "nodes": [graph.num_nodes / owners for _ in parts],
                "links": [mean(g.num_links for g in part.subgraphs) for part in parts],
                "missing": [float(part.missing_links or 0) for part in parts],
            }
            for what, each in found.items():
                labels: Labels = {"dataset": dataset, "M": owners, "what": what}
                rows.append(labels | beside_paper(each, [values[dataset][what][k]]))
    note = "Louvain's communities depend on the implementation and on how they are merged."
    return StudyOutput([Table("Table 1: owners and missing links", rows, note)])


def table_main(options: Options, run: RunCells) -> StudyOutput:
    """Table 2: five methods, four datasets, M = 3, 5, 10; and paired differences."""
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for owners in options.num_owners:
            for method in (*PAPER_METHODS, "oracle"):
                labels: Labels = {"dataset": dataset, "M": owners, "method": method}
                wanted += cells_by_seed(options, labels, method, dataset, owners)
    done = run(wanted)
    values = paper_values()["table-main"]

    def paper(labels: Labels) -> Sequence[float] | None:
        found = values[labels["dataset"]].get(labels["method"])
        return found[values["owners"].index(labels["M"])] if found else None

    groups = {tuple(labels.values()): group for labels, group in grouped(done)}
    gaps = [
        {"dataset": dataset, "M": owners, "what": f"{method} − fedsage", "queries": queries}
        | paired_difference(
            accuracies(found, queries),
            accuracies(groups[dataset, owners, "fedsage"], queries),
        )
        for (dataset, owners, method), found in groups.items()
        if method in ("fedsage+", "oracle") and (dataset, owners, "fedsage") in groups
        for queries in ("global", "local")
    ]
    note = " ".join(
        f"The paper also has {one['accuracy']} for {one['method']} on {one['dataset']}, "
        f"M = {one['owners']} ({one['place']})."
        for one in values["also"]
    )
    return StudyOutput(
        [
            Table("Table 2: node classification accuracy", accuracy_rows(done, paper), note),
            Table("Paired by seed, with 95% confidence intervals", gaps),
        ],
        paper=paper,
    )


def sweep(
    options: Options, run: RunCells, key: str, points: Sequence[float], title: str, x_label: str
) -> StudyOutput:
    """FedSage+ with NeighGen, M = 3, over the values of one setting."""
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for value in points:
            labels: Labels = {"dataset": dataset, key: value}
            section = {key: value}
            method = "fedsage+neighgen"
            wanted += cells_by_seed(options, labels, method, dataset, 3, neighgen=section)
    done = run(wanted)
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for labels, group in grouped(done):
        each = list(accuracies(group).values())
        spread = stdev(each) if len(each) > 1 else 0.0
        curves.setdefault(NAMES[str(labels["dataset"])], []).append(
            (float(labels[key]), mean(each), spread)
        )
    note = "The paper has a plot and no numbers."
    panel = Panel(
        title, x_label, "accuracy, global", curves=curves, log_x=key == "alpha", at_least=0.1
    )
    return StudyOutput([Table(title, accuracy_rows(done), note)], [panel])


def figure_alpha(options: Options, run: RunCells) -> StudyOutput:
    """Accuracy over α, with h = 15% and M = 3."""
    points = (0.1, 1.0, 10.0) if options.quick else (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
    return sweep(options, run, "alpha", points, "FedSage+, h = 15%, M = 3", "α")


def figure_hide_ratio(options: Options, run: RunCells) -> StudyOutput:
    """Accuracy over h, with α = 1 and M = 3."""
    points = (0.01, 0.15, 0.3) if options.quick else (0.01, 0.05, 0.1, 0.15, 0.2, 0.3)
    label = "h, share of hidden nodes"
    return sweep(options, run, "hide_ratio", points, "FedSage+, α = 1, M = 3", label)


def table_shared_neighgen(options: Options, run: RunCells) -> StudyOutput:
    """One NeighGen for all owners compared with one per owner, M = 3."""
    values = paper_values()["table-shared-neighgen"]
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for method in ("fedsage", "fedsage+shared", "fedsage+neighgen"):
            labels: Labels = {"dataset": dataset, "method": method}
            wanted += cells_by_seed(options, labels, method, dataset, 3)

    def paper(labels: Labels) -> Sequence[float] | None:
        printed: Sequence[float] = values[labels["dataset"]][labels["method"]]
        return printed

    title = "One shared NeighGen against one for each owner, M = 3"
    return StudyOutput([Table(title, accuracy_rows(run(wanted), paper))], paper=paper)


def pubmed_study(
    options: Options, run: RunCells, name: str, key: str, points: Sequence[int], title: str
) -> StudyOutput:
    """FedSage, FedSage+ and GlobSage on PubMed, M = 5, over the values of one setting."""
    values = paper_values()[name]
    (dataset,) = options.of("pubmed") or ("pubmed",)
    wanted = []
    for value in points:
        for method in ("fedsage", "fedsage+", "globsage"):
            labels: Labels = {"dataset": dataset, key: value, "method": method}
            wanted += cells_by_seed(
                options, labels, method, dataset, 5, classifier={key: value}
            )

    def paper(labels: Labels) -> Sequence[float] | None:
        found = values.get(labels["method"], {}).get(str(labels[key]))
        return None if options.quick else found

    return StudyOutput([Table(title, accuracy_rows(run(wanted), paper))], paper=paper)


def table_batch_size(options: Options, run: RunCells) -> StudyOutput:
    """Batch sizes 1, 16, 64 with one local epoch."""
    points = (16, 64) if options.quick else (1, 16, 64)
    title = "Batch sizes, PubMed, M = 5, one local epoch"
    return pubmed_study(options, run, "table-batch-size", "batch_size", points, title)


def table_local_epochs(options: Options, run: RunCells) -> StudyOutput:
    """Local epochs 1, 3, 5 with batch size 64."""
    points = (1, 3) if options.quick else (1, 3, 5)
    title = "Local epochs, PubMed, M = 5, batch size 64"
    return pubmed_study(options, run, "table-local-epochs", "local_epochs", points, title)
