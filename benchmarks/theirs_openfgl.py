"""OpenFGL's own FedSage+ on our owners and splits: accuracy, CPU seconds and memory.

    git clone https://github.com/xkLi-Allen/OpenFGL
    pip install torch_geometric scikit-network scikit-learn pymetis tqdm
    python benchmarks/theirs_openfgl.py OpenFGL --dataset cora --owners 10 --seed 0

It runs the code of the checkout that you give, with that code's usual settings, and adds none
of it to fedsage. Graphs and splits are handed over in memory, so that nothing is downloaded
and no file of theirs is unpickled. Ours on the same owners: ``fedsage run --json``.

Written against the stored source of commits 44ad0241 (data, tasks, trainer) and a19790ec
(FedSage+), where every call was looked up. It was not run with a checkout.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fedsage.data.load import load
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.graph.split import Split
from fedsage.machine import forget_peak, peak_rss_mb

PARTS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Given:
    """What OpenFGL's trainer reads from its own dataset class."""

    local_data: list[Any]
    global_data: Any
    processed_dir: str


def as_data(graph: Graph, nodes: np.ndarray) -> Any:
    """A graph as OpenFGL holds one: dense features, and where its nodes are in the whole."""
    data = graph.to_pyg()
    data.num_global_classes = graph.num_classes
    data.global_map = dict(enumerate(nodes.tolist()))
    return data


def write_masks(folder: Path, owner: int, nodes: np.ndarray, split: Split) -> None:
    """An owner's split in the files that OpenFGL looks for before it draws one."""
    folder.mkdir(exist_ok=True)
    for part in PARTS:
        picked = getattr(split, part)
        mask = torch.zeros(len(nodes), dtype=torch.bool)
        mask[torch.from_numpy(picked.copy())] = True
        torch.save(mask, folder / f"{part}_{owner}.pt")
        with (folder / f"glb_{part}_{owner}.pkl").open("wb") as file:
            pickle.dump(nodes[picked].tolist(), file)


def given_for(graph: Graph, owners: Partition, splits: list[Split], folder: Path) -> Given:
    """Everything that OpenFGL needs of our owners; masks are in ``folder``."""
    for k, (nodes, split) in enumerate(zip(owners.nodes, splits, strict=True)):
        write_masks(folder / "node_cls", k, nodes, split)
    pairs = zip(owners.subgraphs, owners.nodes, strict=True)
    whole = as_data(graph, np.arange(graph.num_nodes))
    return Given([as_data(*pair) for pair in pairs], whole, str(folder))


def run_theirs(checkout: Path, given: Given, seed: int) -> dict[str, Any]:
    """Train FedSage+ of the checkout; the round is chosen on validation nodes, as it does."""
    sys.path.insert(0, str(checkout))
    sys.argv = sys.argv[:1]  # its settings parse the command line when they are imported
    config: Any = __import__("openfgl.config", fromlist=["args"])
    trainer: Any = __import__("openfgl.flcore.trainer", fromlist=["FGLTrainer"])
    basics: Any = __import__("openfgl.utils.basic_utils", fromlist=["seed_everything"])
    args = config.args
    args.fl_algorithm, args.model, args.metrics = "fedsage_plus", ["graphsage"], ["accuracy"]
    args.dataset, args.num_clients, args.use_cuda = ["Cora"], len(given.local_data), False
    args.evaluation_mode = "local_model_on_local_data"
    basics.seed_everything(seed)
    trainer.FGLDataset = lambda args: given  # in place of its own download and partition
    made = trainer.FGLTrainer(args)
    made.train()
    found: dict[str, Any] = made.evaluation_result
    return {"rounds": args.num_rounds, **found}


def main() -> None:
    """Run theirs on our owners, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="folder of OpenFGL, with openfgl/ in it")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--partition", default="louvain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="0.6,0.2", help="shares for training and validation")
    asked = parser.parse_args()
    if not (asked.checkout / "openfgl" / "config.py").exists():
        parser.error(f"{asked.checkout} holds no openfgl/config.py: give a checkout of OpenFGL")
    torch.set_num_threads(1)
    graph = load(asked.dataset)
    owners = partition(graph, asked.owners, asked.partition, asked.seed)
    train, val = (float(share) for share in asked.split.split(","))
    splits = [owners.split_of(k, train, val, asked.seed) for k in range(asked.owners)]
    with TemporaryDirectory() as folder:
        given = given_for(graph, owners, splits, Path(folder))
        forget_peak()
        before = time.process_time()
        found = run_theirs(asked.checkout, given, asked.seed)
        found |= {"cpu_seconds": time.process_time() - before, "peak_rss_mb": peak_rss_mb()}
    print(json.dumps({"dataset": asked.dataset, "owners": asked.owners, **found}))


if __name__ == "__main__":
    main()
