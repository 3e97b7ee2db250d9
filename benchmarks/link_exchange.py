"""The exchange of known links on a large graph: seconds, memory and bytes, without training.

python -m benchmarks.link_exchange --nodes 1000000 --match hashes
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from fedsage.config import load_config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import partition
from fedsage.mending.links.steps import by_links, work
from fedsage.protocol.exchange import Exchange
from fedsage.runs.setup import data_owners, prepare

OWNERS, WIDTH = 10, 32


def random_graph(nodes: int, links: int) -> Graph:
    """As many links between nodes drawn at random, and dense features."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(nodes, WIDTH)).astype(np.float32)
    ends = draws.integers(nodes, size=(2, links))
    return Graph.from_arrays(x, ends[:, ends[0] != ends[1]], draws.integers(2, size=nodes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--links", type=int, default=0, help="as many as nodes, if omitted")
    parser.add_argument("--match", default="hashes", help="hashes or intersection")
    arguments = parser.parse_args()
    graph = random_graph(arguments.nodes, arguments.links or arguments.nodes)
    owners = partition(graph, OWNERS, how="random", seed=0)
    chosen = {"run": {"method": "fedsage+links"}, "links": {"match": arguments.match}}
    setup = prepare(load_config(chosen, {"data": {"owners": OWNERS}}), owners, graph)
    (group,) = data_owners(setup)
    engine = InProcessEngine(group)
    wall, cpu = time.perf_counter(), time.process_time()
    by_links(Exchange(engine, setup.plan))
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    sums = sum(len(work(owner).held.means) for owner in group)
    traffic = engine.traffic["mending"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{graph.num_nodes:,} nodes, {graph.num_links:,} links, {OWNERS} owners, "
        f"{arguments.match}: {sums:,} sums, {seconds[0]:.0f} s ({seconds[1]:.0f} s of CPU), "
        f"peak {peak:,.0f} MB, {traffic.up / 1e6:,.0f} MB up, {traffic.down / 1e6:,.0f} MB down"
    )


if __name__ == "__main__":
    main()
