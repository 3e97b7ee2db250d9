"""How long a thousand new rows take on an owner's graph of a million nodes, after loading.

``python benchmarks/new_rows.py`` prints seconds by the clock and of the CPU for each way of
mending, from the files of the new rows to the finished table. ``--nodes`` and ``--rows`` change
the sizes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from fedsage.config import ModelConfig
from fedsage.data.new_rows import read_new
from fedsage.graph.graph import Graph
from fedsage.graph.mend import mend
from fedsage.mending.copies import copies
from fedsage.models.backbone import Shape, new_model
from fedsage.models.classifier import NodeClassifier
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.models.subspace import random_basis, reconstructions
from fedsage.rng import generator
from fedsage.runs.predictions import answers_for_new
from fedsage.runs.stored_graph import Answering
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema, schema_of
from fedsage.tables.tables import Scale

FEATURES, CLASSES, DEGREE = 32, 5, 6


def schema() -> Schema:
    """Numbers alone."""
    features = {f"f{k}": {"kind": "number"} for k in range(FEATURES)}
    classes = [f"class {c}" for c in range(CLASSES)]
    return schema_of({"classes": classes, "features": features}, Problems("schema"))


def owner_of(nodes: int, way: str) -> tuple[NodeClassifier, Answering]:
    """A random graph, mended, with an untrained classifier: time depends on neither."""
    stream = generator(0, "new rows")
    x = stream.standard_normal((nodes, FEATURES), dtype=np.float32)
    links = stream.integers(nodes, size=(2, nodes * DEGREE // 2))
    names = schema().class_names
    graph = Graph.from_arrays(x, links, stream.integers(CLASSES, size=nodes), names)
    remembered: Parameters = {}
    if way == "subspace":
        remembered = {"basis": random_basis(FEATURES, 8, stream)}
        mended = mend(graph, reconstructions(graph, remembered["basis"]))
    else:
        mended = mend(graph, copies(graph, 1))
    shape = Shape(FEATURES, CLASSES, ModelConfig())
    phi = parameters_of(new_model(shape, stream))
    scale = Scale(np.zeros(FEATURES), np.ones(FEATURES))
    model = NodeClassifier(shape, phi, names, schema(), scale)
    ids = [f"p{v}" for v in range(nodes)]
    held = Answering("o", ids, graph, mended, "both", "full", (5, 5), 0, 0, way, remembered)
    return model, held


def write_rows(folder: Path, rows: int, nodes: int) -> None:
    """New rows, each linked to six nodes that are there and to the next new one."""
    stream = generator(1, "new rows")
    header = ",".join(["id", *(f"f{k}" for k in range(FEATURES))])
    values = stream.standard_normal((rows, FEATURES)).round(3)
    lines = [",".join([f"n{v}", *map(str, values[v].tolist())]) for v in range(rows)]
    (folder / "nodes.csv").write_text("\n".join([header, *lines]) + "\n")
    ends = stream.integers(nodes, size=(rows, DEGREE)).tolist()
    links = [f"n{v},p{u}" for v in range(rows) for u in ends[v]]
    links += [f"n{v},n{v + 1}" for v in range(rows - 1)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")


def main() -> None:
    """Print the seconds as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=1_000)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_rows(folder, given.rows, given.nodes)
        for way in ("copy", "subspace"):
            model, held = owner_of(given.nodes, way)
            begun, cpu = time.perf_counter(), time.process_time()
            known = {name: v for v, name in enumerate(held.ids)}
            table = answers_for_new(model, held, read_new(folder, schema(), known))
            found[way] = {
                "seconds": round(time.perf_counter() - begun, 2),
                "cpu_seconds": round(time.process_time() - cpu, 2),
            }
            assert len(table["id"]) == given.rows
    print(json.dumps({"nodes": given.nodes, "rows": given.rows, "ways": found}))


if __name__ == "__main__":
    main()
