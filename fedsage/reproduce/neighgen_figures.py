"""Studies of what happens inside: NeighGen, training curves, labels, the kernel's bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedsage.data.load import load
from fedsage.graph.partition import label_counts, partition
from fedsage.graph.split import split_labels
from fedsage.paper import paper_values
from fedsage.reproduce.cells import FinishedCell, Labels, grouped
from fedsage.reproduce.figures import Panel
from fedsage.reproduce.studies import (
    NAMES,
    PAPER_DATASETS,
    PAPER_METHODS,
    Options,
    RunCells,
    StudyOutput,
    cells_by_seed,
)
from fedsage.reproduce.tables import Table, TableRow, beside_paper
from fedsage.rng import generator
from fedsage.theory.bound import generalization_bound, predict_by_kernel
from fedsage.theory.gntk import distinct_nodes, gntk

ONE_ROUND = {"rounds_c": 1}
FAILURE_PROB = 0.05  # σ of the bound


def table_fgen(options: Options, run: RunCells) -> StudyOutput:
    """Distance of neighborhoods from the truth, before and after mending."""
    values = paper_values()["table-fgen"]
    wanted = []
    for dataset in options.of(*PAPER_DATASETS):
        for owners in options.num_owners:
            labels: Labels = {"dataset": dataset, "M": owners}
            wanted += cells_by_seed(
                options, labels, "fedsage+neighgen", dataset, owners, classifier=ONE_ROUND
            )
    rows: list[TableRow] = []
    for labels, group in grouped(run(wanted)):
        printed = values[labels["dataset"]][values["owners"].index(labels["M"])]
        for k, what in enumerate(("distance_mended", "distance_plain")):
            each = [float(one.record["mending"][what]["mean"]) for one in group]
            rows.append(labels | {"what": what} | beside_paper(each, [printed[k]]))
    note = (
        "Ours: Euclidean distance between mean neighbor features, over nodes that miss a "
        "neighbor. The paper does not say how its features are scaled, nor over which nodes, "
        "so compare the ratio of the two rows, not the values."
    )
    return StudyOutput([Table("fGen: distance from the true neighborhood", rows, note)])


def figure_dgen(options: Options, run: RunCells) -> StudyOutput:
    """Neighbors that dGen predicts compared with those missing, MSAcademic, M = 3."""
    (dataset,) = options.of("msacademic") or ("msacademic",)
    labels: Labels = {"dataset": dataset, "M": 3}
    wanted = cells_by_seed(
        options, labels, "fedsage+neighgen", dataset, 3, classifier=ONE_ROUND
    )[:1]
    found = run(wanted)[0].record["mending"]
    counts = np.array(found["counts"])
    rows: list[TableRow] = [
        {"missing": int(r), "attached": int(c), "nodes": int(counts[r, c])}
        for r, c in zip(*np.nonzero(counts), strict=True)
    ]
    title = f"dGen on {NAMES[dataset]}, M = 3"
    note = f"Correlation of the two: {found['count_correlation']}. 20 stands for 20 and more."
    panel = Panel(title, "neighbors attached", "neighbors missing", counts=counts.tolist())
    return StudyOutput([Table(title, rows, note)], [panel])


def figure_curves(options: Options, run: RunCells) -> StudyOutput:
    """Accuracy, loss and time over 100 epochs, Cora, M = 5, five methods."""
    wanted = []
    for method in PAPER_METHODS:
        more = {} if options.quick else {"classifier": {"rounds_c": 100}}
        wanted += cells_by_seed(options, {"method": method}, method, "cora", 5, **more)
    done = run(wanted)
    rows: list[TableRow] = []
    curves: dict[str, dict[str, list[tuple[float, float, float]]]] = {
        "validation": {}, "loss": {}, "seconds": {},
    }  # fmt: skip
    for labels, group in grouped(done):
        method = NAMES[str(labels["method"])]
        for key, found in curves.items():
            found[method] = by_round(group, key)
        last = {key: found[method][-1][1] for key, found in curves.items()}
        rows.append(labels | last)
    panels = [
        Panel("accuracy", "round", "accuracy on validation nodes", curves=curves["validation"]),
        Panel("loss", "round", "training loss", curves=curves["loss"]),
        Panel("time", "round", "seconds so far", curves=curves["seconds"]),
    ]
    note = (
        "The last round of each method. The paper plots test accuracy; ours is on the owners' "
        "validation nodes, queried on each owner's own graph, because test nodes are queried "
        "only once, at the end. GlobSage's is on the whole graph. Seconds include NeighGen and "
        "add up over local models."
    )
    return StudyOutput([Table("Training curves, Cora, M = 5", rows, note)], panels)


def by_round(group: list[FinishedCell], key: str) -> list[tuple[float, float, float]]:
    """Round, mean and spread over seeds."""
    values: dict[int, list[float]] = {}
    for one in group:
        found = time_of(one.history) if key == "seconds" else averages(one.history, key)
        for t, value in found.items():
            values.setdefault(t, []).append(value)
    return [(t, mean(v), stdev(v) if len(v) > 1 else 0.0) for t, v in sorted(values.items())]


def averages(history: Sequence[Mapping[str, Any]], key: str) -> dict[int, float]:
    """A value for every round of the classifier; the mean over local models."""
    rounds: dict[int, list[float]] = {}
    for line in history:
        if line["phase"] == "training":
            rounds.setdefault(line["round"] + 1, []).append(float(line[key]))
    return {t: mean(found) for t, found in rounds.items()}


def time_of(history: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Seconds that all models together took for the rounds so far and for NeighGen."""
    spent: dict[int, float] = {}
    before = 0.0
    for line in history:
        t = line["round"] + 1 if line["phase"] == "training" else 0
        spent[t] = spent.get(t, 0.0) + line["seconds"] - before
        before = line["seconds"]
    total, found = spent.pop(0, 0.0), {}
    for t in sorted(spent):
        total += spent[t]
        found[t] = total
    return found


def figure_labels(options: Options, run: RunCells) -> StudyOutput:
    """Label distributions on PubMed, M = 5: each owner's, the true ones, the predicted."""
    (dataset,) = options.of("pubmed") or ("pubmed",)
    wanted = []
    for method in PAPER_METHODS:
        wanted += cells_by_seed(options, {"method": method}, method, dataset, 5)
    shares: dict[str, list[float]] = {}
    for labels, group in grouped(run(wanted)):
        each = [one.record["labels"] for one in group]
        shares.setdefault(
            "ground truth", np.mean([one["true"] for one in each], axis=0).tolist()
        )
        predicted = np.mean([one["predicted"] for one in each], axis=0)
        shares[NAMES[str(labels["method"])]] = predicted.tolist()
    part = partition(load(dataset), 5, "louvain", 0)
    names = [str(name).replace("_", " ") for name in part.subgraphs[0].class_names]
    owners = {
        f"D{i}": (label_counts(g) / max(label_counts(g).sum(), 1)).tolist()
        for i, g in enumerate(part.subgraphs)
    }
    rows: list[TableRow] = [
        {"who": who} | dict(zip(names, found, strict=True))
        for who, found in (owners | shares).items()
    ]
    panels = [
        Panel("what owners hold", "", "share of nodes", bars=owners, groups=names),
        Panel("what is predicted", "", "share of test nodes", bars=shares, groups=names),
    ]
    title = f"Label distributions, {NAMES[dataset]}, M = 5"
    return StudyOutput([Table(title, rows)], panels)


def gntk_bound(options: Options, run: RunCells) -> StudyOutput:
    """The bound, and the real test error of the kernel, over the number of training nodes."""
    graph = load("cora")
    if options.quick:
        chosen = generator(0, "gntk").permutation(graph.num_nodes)[:600]
        graph = graph.induced(np.sort(chosen))
    theta = gntk(graph, num_layers=1, num_transforms=1)
    split = split_labels(graph.y, 0.6, 0.2, 0, 0)
    single = np.intersect1d(split.train, distinct_nodes(theta))
    points = [n for n in (50, 100, 200, 400, 800, 1200) if n <= len(single)]
    rows: list[TableRow] = []
    curves: dict[str, list[tuple[float, float, float]]] = {"bound": [], "test error": []}
    targets = np.eye(graph.num_classes)[graph.y]
    for n in points:
        bounds, errors = [], []
        for seed in options.all_seeds:
            train = generator(seed, "gntk, train", n).permutation(single)[:n]
            inner = theta[np.ix_(train, train)]
            of_classes = [
                generalization_bound(inner, 2 * targets[train, c] - 1, FAILURE_PROB)
                for c in range(graph.num_classes)
            ]
            said = predict_by_kernel(theta, train, split.test, targets[train])
            bounds.append(mean(of_classes))
            errors.append(float((said.argmax(axis=1) != graph.y[split.test]).mean()))
        confidence = sqrt(log(1 / FAILURE_PROB) / n)
        rows.append({"n": n, "bound": mean(bounds), "of labels": mean(bounds) - confidence,
                     "of chance": confidence, "test error": mean(errors),
                     "seeds": len(errors)})  # fmt: skip
        for name, each in (("bound", bounds), ("test error", errors)):
            spread = stdev(each) if len(each) > 1 else 0.0
            curves[name].append((float(n), mean(each), spread))
    note = (
        f"{graph.num_nodes} nodes of Cora, K = R = 1; the bound is without its constant, "
        "averaged over one-against-rest labels; the error is that of kernel regression. Of "
        "nodes with the same aggregated features only one is kept (which leaves out "
        f"{len(split.train) - len(single)} of {len(split.train)} training nodes): with two of "
        "them Θ has no inverse, and if their labels differ the bound is infinite. The term "
        "for chance falls as 1/√n. The term for labels, √(yᵀΘ⁻¹y · tr Θ) / n, falls at first "
        "and then levels off, because yᵀΘ⁻¹y grows as fast as n: real labels are not the "
        "smooth functions of features that the paper's lemma assumes. So the bound stays above "
        "the error but does not predict how it falls."
    )
    panel = Panel(
        "GNTK on Cora", "training nodes", "error", curves=curves, log_x=True, from_zero=True
    )
    return StudyOutput([Table("Generalization bound and test error", rows, note)], [panel])
