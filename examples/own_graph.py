"""A graph of your own: from arrays to a file that every verb takes, and to a trained model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedsage as fs

draws = np.random.Generator(np.random.PCG64(0))
num_patients = 300
ward = draws.integers(3, size=num_patients)  # what we want to predict
features = draws.normal(size=(num_patients, 8)) + 2 * np.eye(3, 8)[ward]
meetings = draws.integers(num_patients, size=(2, 900))
meetings = meetings[:, ward[meetings[0]] == ward[meetings[1]]]  # patients meet in their ward
labels = np.where(draws.random(num_patients) < 0.1, -1, ward)  # some are not known

graph = fs.Graph.from_arrays(features, meetings, labels, ["north", "south", "west"])
with TemporaryDirectory() as folder:
    path = Path(folder) / "patients.npz"
    fs.save_graph(graph, path)  # fedsage run --dataset patients.npz
    graph = fs.load(str(path))

owners = fs.partition(graph, num_owners=3, how="random", seed=0)
result = fs.run(owners, "fedsage", evaluate_on=graph, settings={"classifier": {"rounds_c": 15}})
unknown = np.flatnonzero(graph.y < 0)
right = (result.model.predict(graph)[unknown] == ward[unknown]).mean()
print(
    f"accuracy {result.accuracy['global']:.3f}; of {len(unknown)} unlabelled nodes {right:.3f}"
)
