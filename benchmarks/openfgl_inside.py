"""OpenFGL's FedSage+ on owners and splits that ``openfgl.py`` wrote; it calls this file.

Runs in the Python of an OpenFGL checkout, which has torch and PyTorch Geometric but not
fedsage.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

PARTS = ("train", "val", "test")


def graph_in(file: Path) -> Any:
    """One graph as PyTorch Geometric has it."""
    from torch_geometric.data import Data

    held = np.load(file)
    x, y = torch.from_numpy(held["x"]), torch.from_numpy(held["y"])
    data = Data(x=x, y=y, edge_index=torch.from_numpy(held["links"]))
    data.num_global_classes = int(held["classes"])
    data.global_map = dict(enumerate(held["nodes"].tolist()))
    return data


def write_splits(owner: int, file: Path, folder: Path) -> None:
    """The owner's split: masks, and the numbers of its nodes in the whole graph."""
    held = np.load(file)
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        mask = held[part]
        torch.save(torch.from_numpy(mask), folder / f"{part}_{owner}.pt")
        numbers = held["nodes"][mask].tolist()
        (folder / f"glb_{part}_{owner}.pkl").write_bytes(pickle.dumps(numbers))


def main(given: Path, checkout: str, seed: int, rounds: int) -> None:
    """Train, and print what it took and found as one line of JSON."""
    sys.path.insert(0, checkout)
    sys.argv = sys.argv[:1]  # its settings are read from the command line
    torch.load = partial(torch.load, weights_only=False)  # type: ignore[assignment]
    from openfgl import config
    from openfgl.data import distributed_dataset_loader as loader
    from openfgl.flcore.trainer import FGLTrainer

    files = sorted(given.glob("owner-*.npz"))
    args = config.args
    args.root, args.dataset, args.num_clients = str(given / "root"), ["Cora"], len(files)
    args.simulation_mode, args.task = "subgraph_fl_louvain", "node_cls"
    args.fl_algorithm, args.model, args.metrics = "fedsage_plus", ["graphsage"], ["accuracy"]
    args.seed, args.use_cuda, args.num_rounds = seed, False, rounds
    whole = graph_in(given / "whole.npz")
    named = SimpleNamespace(data=whole, num_classes=whole.num_global_classes)
    loader.load_global_dataset = lambda *place, **more: named
    place = SimpleNamespace(args=args, distrib_root=str(given / "root" / "distrib"))
    folder = Path(loader.FGLDataset.processed_dir.fget(place))
    folder.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(files):
        torch.save(graph_in(file), folder / f"data_{i}.pt")
        for inside in ("node_cls", "node_cls/default_split"):  # older and newer versions
            write_splits(i, file, folder / inside)
    for draw in (np.random.seed, torch.manual_seed):
        draw(seed)
    before = used()
    trainer = FGLTrainer(args)
    trainer.train()
    found = trainer.evaluation_result
    local = float(found["best_test_accuracy"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"cpu": used() - before, "gigabytes": memory, "local": local}))


def used() -> float:
    """CPU seconds so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
