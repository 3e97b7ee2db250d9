"""Hold a contest: trials on validation nodes, then runs on other seeds, all of them stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedsage.arena.contest import TUNING, Contest, Entrant, Moments, Point, Ring
from fedsage.errors import FedSageError
from fedsage.evaluation.paired import paired_difference
from fedsage.readable import all_phases, both_ways
from fedsage.reproduce.cells import Cell, FinishedCell, fingerprint, not_tolerated, run_cells
from fedsage.runs.comparison import as_json, row_of, summary

OnCell: TypeAlias = Callable[[int, int, Cell], None]
OnFailure: TypeAlias = Callable[[Cell, FedSageError], None]
Place: TypeAlias = tuple[Entrant, Ring, Moments]
MEASURES = ("global", "local")


@dataclass(frozen=True, slots=True)
class Standing:
    """One entrant on one ring, with one treatment of the optimizer's state."""

    who: Entrant
    ring: Ring
    moments: Moments
    point: Point  # what was chosen
    trials: Sequence[Mapping[str, Any]]  # what was tried, with its accuracy on validation nodes
    records: Sequence[Mapping[str, Any]]  # one for each seed

    def by_seed(self, measure: str) -> dict[int, float]:
        """Accuracy for each seed: global or local, of the model that the method is for."""
        return {
            record["seed"]: record["accuracy"][measure]
            for record in self.records
            if record["accuracy"][measure] is not None
        }

    def values(self, measure: str) -> list[float]:
        """The same without the seeds."""
        return list(self.by_seed(measure).values())


def hold(
    contest: Contest,
    store: Path,
    on_cell: OnCell,
    jobs: int = 1,
    on_failure: OnFailure = not_tolerated,
) -> list[Standing]:
    """Run what is not in ``store`` yet; with no jobs, only what is there counts.

    Trials are run without stress, on a seed of their own, and the one with the best accuracy
    on validation nodes is chosen; the earliest if several are equal.
    """
    calm = list(dict.fromkeys(replace(ring, stress=()) for ring in contest.rings))
    places = [
        (who, ring, moments)
        for ring in calm
        for who in contest.entrants
        for moments in who.columns
    ]
    runs = partial(run_cells, store=store, on_cell=on_cell, jobs=jobs, on_failure=on_failure)
    tried = tried_at(contest, places, runs)
    usual = {who: contest.trials(who)[0] for who in contest.entrants}
    cells = {
        (who, ring, moments, seed): Cell(
            labels_of(who, ring, moments),
            contest.config(who, ring, moments, chosen_of(tried[place], usual[who]), seed),
        )
        for ring in contest.rings
        for who in contest.entrants
        for moments in who.columns
        for seed in contest.seeds
        for place in [(who, replace(ring, stress=()), moments)]
    }
    done = by_settings(runs(list(cells.values())))
    found = []
    for ring in contest.rings:
        for who in contest.entrants:
            for moments in who.columns:
                trial = tried[who, replace(ring, stress=()), moments]
                records = [
                    done[key]
                    for seed in contest.seeds
                    if (key := fingerprint(cells[who, ring, moments, seed].config)) in done
                ]
                if records:
                    point = chosen_of(trial, usual[who])
                    found.append(Standing(who, ring, moments, point, trial, records))
    return found


def tried_at(
    contest: Contest,
    places: Sequence[Place],
    runs: Callable[[Sequence[Cell]], list[FinishedCell]],
) -> dict[Place, list[dict[str, Any]]]:
    """What was tried for each entrant on each ring; nothing where there is no choice."""
    cells: dict[tuple[Place, int], tuple[Point, Cell]] = {}
    for place in places:
        who, ring, moments = place
        points = contest.trials(who)
        for k, point in enumerate(points if len(points) > 1 else ()):
            config = contest.config(who, ring, moments, point, TUNING)
            cells[place, k] = point, Cell(labels_of(who, ring, moments) | {"trial": k}, config)
    done = by_settings(runs([cell for _, cell in cells.values()]))
    found: dict[Place, list[dict[str, Any]]] = {place: [] for place in places}
    for (place, _), (point, cell) in cells.items():
        if (key := fingerprint(cell.config)) in done:
            validation = done[key]["validation"]
            found[place].append({"settings": dict(point), "validation": validation})
    return found


def chosen_of(tried: Sequence[Mapping[str, Any]], usual: Point) -> Point:
    """The trial that was best on validation nodes; the usual settings if nothing was tried."""
    best: Point = max(tried, key=lambda one: one["validation"])["settings"] if tried else usual
    return best


def labels_of(who: Entrant, ring: Ring, moments: Moments) -> dict[str, str | int | float]:
    """What a run is called in progress lines."""
    return {"dataset": ring.dataset, "M": ring.owners, "method": who.name, "moments": moments}


def by_settings(done: Sequence[FinishedCell]) -> dict[str, dict[str, Any]]:
    """Records of finished runs, by the fingerprint of their settings and seed."""
    return {one.settings: one.record for one in done}


def rows_of(standings: Sequence[Standing], printed: Callable[[Ring, str], Any]) -> list[Any]:
    """A row for each standing: as ``compare`` has it, and what the arena adds."""
    return [row_for(one, standings, printed) for one in standings]


def row_for(
    one: Standing, standings: Sequence[Standing], printed: Callable[[Ring, str], Any]
) -> dict[str, Any]:
    """Accuracy of both models, the settings chosen, costs, and the gap to the first entrant."""
    records = one.records
    row = as_json(row_of(records, None))
    models = [record["models"] for record in records]
    both = {
        model: {
            measure: summary([held[model][measure] for held in models]) for measure in MEASURES
        }
        for model in ("shared", "own")
    }
    sent = [both_ways(all_phases(record["bytes"])) for record in records]
    return row | both | {
        "method": one.who.name,
        "backbone": records[0]["backbone"],
        "moments": one.moments,
        "split": one.ring.split,
        "stress": dict(one.ring.stress),
        "settings": dict(one.point),
        "trials": list(one.trials),
        "bytes": sum(sent) / len(sent),
        "peak_rss_mb": max(record["peak_rss_mb"] for record in records),
        "differences": differences(one, standings),
        "printed": printed(one.ring, one.who.name),
    }  # fmt: skip


def differences(one: Standing, standings: Sequence[Standing]) -> dict[str, Any]:
    """How far it is above the first entrant on the same ring, seed by seed."""
    first = standings[0].who
    same = [s for s in standings if s.ring == one.ring and s.moments == one.moments]
    base = next((s for s in same if s.who == first), None)
    found: dict[str, Any] = {"against": first.name}
    for measure in MEASURES:
        mine, theirs = one.by_seed(measure), base.by_seed(measure) if base else {}
        seeds = [seed for seed in mine if seed in theirs]
        if one is base or not seeds:
            found[measure] = None
            continue
        gap = paired_difference([mine[s] for s in seeds], [theirs[s] for s in seeds])
        found[measure] = {"mean": gap.mean, "low": gap.low, "high": gap.high}
    return found


def ranks(standings: Sequence[Standing], measure: str) -> dict[str, list[tuple[str, float]]]:
    """The rank of every entrant on each ring and seed, by name; equal ones share theirs.

    Each entrant has the better of its treatments of the optimizer's state, by validation
    nodes. Rings and seeds that not all entrants have run are left out.
    """
    rings = list(dict.fromkeys(one.ring for one in standings))
    names = list(dict.fromkeys(one.who.name for one in standings))
    found: dict[str, list[tuple[str, float]]] = {}
    for ring in rings:
        better: dict[str, Standing] = {}
        for one in standings:
            held = better.get(one.who.name)
            if one.ring == ring and (held is None or sure(one) > sure(held)):
                better[one.who.name] = one
        known = [one.by_seed(measure) for one in better.values()]
        common = set(known[0]).intersection(*known) if len(better) == len(names) else set()
        for seed in sorted(common):
            scores = {name: one.by_seed(measure)[seed] for name, one in better.items()}
            for name, score in scores.items():
                above = sum(other > score for other in scores.values())
                equal = sum(other == score for other in scores.values())
                where = f"{ring.words}, seed {seed}"
                found.setdefault(name, []).append((where, above + (equal + 1) / 2))
    return found


def sure(one: Standing) -> float:
    """The mean accuracy on validation nodes."""
    return sum(record["validation"] for record in one.records) / len(one.records)
