"""A way of mending of your own: every training node gets the mean node of its class.

Owners send the sum of their training rows by class, and the server needs the sum over owners
alone. Run it beside the others, or between machines (docs/extending.md):

    fedsage compare --dataset synthetic --methods fedsage,fedsage+examples/my_mending.py
"""

from __future__ import annotations

import numpy as np
import torch

import fedsage as fs


@fs.message
class ClassSums:
    """D_i → S, then summed S → every D_i: training rows added up by class."""

    total: torch.Tensor  # d_y × d_x
    count: torch.Tensor  # d_y


@fs.procedure(
    phase="mending",
    uses=fs.Summed,
    shapes=lambda plan: {"total": (plan.d_y, plan.d_x), "count": (plan.d_y,)},
    leaves="Before training, once: for each class, the sum of your training rows and how many.",
)
def add_up_classes(owner: fs.DataOwner, ask: fs.Ask) -> ClassSums:
    """What this owner adds."""
    train, y = owner.split.train, owner.graph.y
    is_class = np.eye(owner.plan.d_y, dtype=np.float32)[:, y[train]]
    is_class *= is_class.sum(axis=1, keepdims=True) >= 8  # a sum of one row is that row
    total = np.asarray(is_class @ owner.graph.x[train], dtype=np.float32)
    return ClassSums(torch.from_numpy(total), torch.from_numpy(is_class.sum(axis=1)))


@fs.procedure(phase="mending", owed=True)
def mend_by_class_means(owner: fs.DataOwner, sums: ClassSums) -> fs.Mended:
    """Attach the mean row of its class to every training node."""
    means = (sums.total / sums.count.clamp_min(1)[:, None]).numpy()
    train = owner.split.train
    rows = means[owner.graph.y[train]]
    return owner.attach(fs.Generated.of(train, rows, like=owner.graph))


@fs.way_of_mending("class-means")
def by_class_means(exchange: fs.Exchange) -> None:
    """The mean node of its class as a neighbor of every training node: one sum is exchanged."""
    exchange.all(mend_by_class_means, exchange.sum(add_up_classes, fs.Ask(0)))


if __name__ == "__main__":
    graph = fs.load("synthetic")
    owners = fs.partition(graph, num_owners=3, how="louvain", seed=0)
    for method in ("fedsage", "fedsage+class-means"):
        print(method, fs.run(owners, method, evaluate_on=graph).accuracy)
