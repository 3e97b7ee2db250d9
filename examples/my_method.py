"""FedProx as a method of your own: FedSage whose owners are held near the shared classifier.

Run it beside the others:

    fedsage compare --dataset synthetic --methods fedsage,examples/my_method.py --seeds 2
"""

from __future__ import annotations

from typing import Any

import torch

import fedsage as fs

MU = 0.1  # strength of the pull


class ProxAdam(torch.optim.Adam):
    """Adam on l(φ) + μ/2 ‖φ − φ_shared‖²."""

    def pull_towards_here(self) -> None:
        """Remember the weights as they are."""
        self.shared = [w.detach().clone() for g in self.param_groups for w in g["params"]]

    def step(self, closure: Any = None) -> Any:
        """Add the gradient of the pull, then step."""
        weights = [w for group in self.param_groups for w in group["params"]]
        for weight, shared in zip(weights, self.shared, strict=True):
            assert weight.grad is not None
            weight.grad.add_(weight.detach() - shared, alpha=MU)
        return super().step(closure)


@fs.method("proximal")
class ProxOwner(fs.DataOwner):
    """An owner whose procedure F minimizes the proximal loss."""

    def new_optimizer(self) -> ProxAdam:
        """In place of the Adam of FedSage."""
        self.model.kernel = "torch"  # the compiled one has its own Adam
        how = self.config.classifier
        return ProxAdam(self.model.parameters(), lr=how.eta, weight_decay=how.weight_decay)

    def local_update_c(self, ask: fs.Ask) -> fs.ClassifierUpdate:
        """Procedure F; the shared classifier was just received."""
        assert isinstance(self.optimizer, ProxAdam)
        self.optimizer.pull_towards_here()
        return super().local_update_c(ask)


if __name__ == "__main__":
    graph = fs.load("synthetic")
    owners = fs.partition(graph, num_owners=3, how="louvain", seed=0)
    for method in ("fedsage", "proximal"):
        result = fs.run(owners, method=method, evaluate_on=graph)
        print(result.record.method, result.accuracy)
