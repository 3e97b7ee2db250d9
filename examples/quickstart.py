"""Train FedSage with three owners, look at the result, predict. Takes a few seconds."""

from __future__ import annotations

import fedsage as fs

graph = fs.load("synthetic", nodes=1000)  # or "cora", or the path of an .npz file
owners = fs.partition(graph, num_owners=3, how="louvain", seed=0)
print(owners)

settings = {"classifier": {"rounds_c": 10}}
for method in ("locsage", "fedsage", "globsage"):
    result = fs.run(owners, method=method, seed=0, evaluate_on=graph, settings=settings)
    print(result)

labels = result.model.predict(graph)  # full neighborhoods, in batches
print(f"the last model predicts {graph.class_names[labels[0]]!r} for node 0")
