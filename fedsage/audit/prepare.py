"""Runs made for an audit, and runs that were recorded: both become a case.

A run made for an audit leaves some nodes out: rows of the same kind that no owner holds. So one
can test even a sum over all owners for whether it reveals who is in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedsage.audit.case import Case
from fedsage.config import Config, load_config
from fedsage.data.load import load, owner_folders
from fedsage.data.owned import load_owners
from fedsage.errors import DataError
from fedsage.files import write_json
from fedsage.graph.assign import assign
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, by_owner
from fedsage.models.classifier import load_models
from fedsage.rng import generator
from fedsage.runs.events import Observer, Stopwatch
from fedsage.runs.execute import execute
from fedsage.runs.folder import read_result
from fedsage.runs.messages_seen import MESSAGES, read_recording
from fedsage.runs.result import RunResult
from fedsage.runs.run import into_folder
from fedsage.runs.setup import prepare
from fedsage.shapes import NodeIds

LEFT_OUT = "left-out.json"  # beside the messages
SHARE = 0.1  # of nodes that are left out


def run_for_audit(
    config: Config, folder: Path, observe: Observer, force: bool, command: str
) -> RunResult:
    """A recorded run on the graph that ``config`` names, with some nodes left out."""
    whole = load(config.data.dataset, **config.synthetic.model_dump())
    left_out = drawn(whole, config.run.seed)
    owners, graph = owners_without(config, whole, left_out)

    def go(observe: Observer) -> RunResult:
        watch = Stopwatch(observe)
        return execute(config, owners, graph, watch, observe, folder, record=folder)

    result = into_folder(go, config, folder, observe, force, False, command=command)
    write_json(folder / MESSAGES / LEFT_OUT, {"nodes": left_out.tolist()})
    return result


def drawn(graph: Graph, seed: int) -> NodeIds:
    """The nodes that are left out."""
    nodes = generator(seed, "left out").permutation(graph.num_nodes)
    return np.sort(nodes[: round(SHARE * graph.num_nodes)])


def owners_without(config: Config, whole: Graph, left_out: NodeIds) -> tuple[Partition, Graph]:
    """The owners as cut with all nodes, but without those; and the graph they cut."""
    data, seed = config.data, config.run.seed
    owner = assign(whole, data.owners, data.partition, seed)
    kept = np.setdiff1d(np.arange(whole.num_nodes), left_out)
    graph = whole.induced(kept)
    return by_owner(graph, owner[kept], data.owners, data.partition, seed), graph


def recorded_case(folder: Path, quick: bool) -> Case:
    """The recorded run in ``folder``."""
    result = read_result(folder)
    if not result.get("config"):
        raise DataError(f"{folder} does not say what was run. Run it again with --record.")
    config = load_config(result["config"], preset=str(result["preset"]))
    whole: Graph | None = None
    left_out = nodes_left_out(folder)
    if owner_folders(config.data.dataset):
        owners = load_owners(config.data.dataset)
        graph: Graph | None = None
    elif config.data.dataset == "own":
        raise DataError(
            f"The graph of {folder} was passed in Python, so it cannot be loaded again. "
            "Give a path or a dataset's name."
        )
    else:
        whole = load(config.data.dataset, **config.synthetic.model_dump())
        owners, graph = owners_without(config, whole, left_out)
    setup = prepare(config, owners, graph)
    phi = load_models(folder)[0].phi
    recording = read_recording(folder, setup.plan.asks)
    rows = whole.x[left_out] if whole is not None and len(left_out) else None
    return Case(setup, recording, phi, rows, quick)


def nodes_left_out(folder: Path) -> NodeIds:
    """The nodes that were left out of the run in ``folder``."""
    path = folder / MESSAGES / LEFT_OUT
    nodes = json.loads(path.read_text())["nodes"] if path.exists() else []
    return np.asarray(nodes, dtype=np.int64)
