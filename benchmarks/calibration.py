"""How well probabilities are calibrated, beside how well they could be on so few nodes.

    python benchmarks/calibration.py cora --seeds 5
    python benchmarks/calibration.py --choose cora      # validation nodes of seeds 100 to 105

For each seed: the expected calibration error (ten steps, test nodes at their owners) of preset
``best`` with five owners, and that of perfectly calibrated answers: labels drawn from the very
probabilities of the run, again and again. ``--choose`` compares ways of calibrating on halves
of the validation nodes, by the error and by the loss; it looks at no test node.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedsage as fs
from fedsage.machine import machine, versions
from fedsage.models.calibration import AS_IS, GRID, Calibration, likeliest
from fedsage.protocol.measuring import BINS, loss_with
from fedsage.runs.result import RunResult

OWNERS, DRAWS, HALVES = 5, 400, 20
OUT = Path(__file__).parents[1] / "docs" / "results" / "calibration.json"


def error_of(shares: np.ndarray, y: np.ndarray) -> float:
    """Expected calibration error."""
    sure, right = shares.max(axis=1), shares.argmax(axis=1) == y
    step = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(step, weights=sure - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y))


def drawn_labels(shares: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Labels that come true as often as the probabilities say."""
    ends = shares.cumsum(axis=1)
    return (stream.random((len(shares), 1)) * ends[:, -1:] > ends).sum(axis=1)


def run_on(name: str, seed: int) -> RunResult:
    """Preset ``best``, five owners."""
    graph = fs.load(name)
    parts = fs.partition(graph, OWNERS, seed=seed)
    return fs.run(parts, "fedsage+", seed=seed, evaluate_on=graph, dataset=name, progress=False)


def answers(found: RunResult, part: str, sure: Calibration) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of one part of the split, at all owners."""
    model = replace(found.model, calibration=sure)
    nodes = [(held, getattr(held.graph.split, part)) for held in found.answering]
    shares = [held.shares(model, some).astype(float) for held, some in nodes]
    return np.concatenate(shares), np.concatenate([h.graph.y[some] for h, some in nodes])


def reported(name: str, seed: int) -> dict[str, Any]:
    """The error of one run, and the errors of perfectly calibrated answers."""
    found = run_on(name, seed)
    shares, _ = answers(found, "test", found.model.calibration)
    stream = np.random.default_rng(seed)
    perfect = [error_of(shares, drawn_labels(shares, stream)) for _ in range(DRAWS)]
    return {
        "seed": seed, "error": found.record.calibration_error, "nodes": len(shares),
        "temperature": found.record.temperature, "slope": found.record.slope,
        "accuracy": found.record.accuracy,
        "by_chance": found.record.calibration_error_by_chance,
        "perfect_mean": float(np.mean(perfect)),
        "perfect_95": float(np.quantile(perfect, 0.95)),
        "share_of_perfect_above_0.03": float(np.mean(np.array(perfect) > 0.03)),
    }  # fmt: skip


def choose(name: str) -> None:
    """Error and loss on the other half of validation nodes, by what is fitted on one half."""
    whats = ("nothing", "temperature", "temperature and slope")
    found: dict[str, list[tuple[float, float]]] = {what: [] for what in whats}
    for seed in range(100, 106):
        shares, y = answers(run_on(name, seed), "val", AS_IS)
        scores, stream = np.log(np.maximum(shares, 1e-30)), np.random.default_rng(seed)
        for _ in range(HALVES):
            order = stream.permutation(len(y))
            fit, rest = (
                (torch.from_numpy(scores[half]), torch.from_numpy(y[half]))
                for half in (order[: len(y) // 2], order[len(y) // 2 :])
            )
            losses = [float(loss_with(one, *fit)) for one in GRID]
            straight = [
                loss + 1e9 * (one.slope != 0) for loss, one in zip(losses, GRID, strict=True)
            ]
            for what, one in zip(
                whats, (AS_IS, likeliest(straight), likeliest(losses)), strict=True
            ):
                error = error_of(one.shares(rest[0]).numpy(), rest[1].numpy())
                found[what].append((error, float(loss_with(one, *rest)) / len(rest[1])))
    for what, pairs in found.items():
        error, loss = np.mean(pairs, axis=0)
        print(f"{what}: error {error:.4f}, loss {loss:.4f}")


def main() -> None:
    """Measure, and add to the file of results."""
    read = argparse.ArgumentParser()
    read.add_argument("datasets", nargs="+")
    read.add_argument("--seeds", type=int, default=5)
    read.add_argument("--choose", action="store_true")
    given = read.parse_args()
    if given.choose:
        for name in given.datasets:
            choose(name)
        return
    kept = json.loads(OUT.read_text()) if OUT.exists() else {"datasets": {}}
    for name in given.datasets:
        rows = [reported(name, seed) for seed in range(given.seeds)]
        for row in rows:
            print(name, row, flush=True)
        kept["datasets"][name] = rows
    kept |= {"owners": OWNERS, "preset": "best", "versions": versions(), "machine": machine()}
    OUT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
