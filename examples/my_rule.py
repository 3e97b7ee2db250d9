"""An aggregation rule of your own: the mean of all owners whose weights are not far off.

fedsage run --dataset synthetic --aggregate examples/my_rule.py
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

import fedsage as fs


@fs.aggregation_rule("near-the-median")
def near_the_median(
    updates: Sequence[dict[str, torch.Tensor]], weights: Sequence[float]
) -> dict[str, torch.Tensor]:
    """The weighted mean, without owners thrice as far from the median as is usual."""
    middle = {
        name: torch.stack([update[name] for update in updates]).median(dim=0).values
        for name in updates[0]
    }
    far = torch.tensor(
        [
            sum(float((update[k] - middle[k]).square().sum()) for k in middle)
            for update in updates
        ]
    )
    near = [i for i in range(len(updates)) if far[i] <= 9 * far.median()]
    total = sum(weights[i] for i in near)
    return {
        name: torch.stack([updates[i][name] * (weights[i] / total) for i in near]).sum(dim=0)
        for name in updates[0]
    }


if __name__ == "__main__":
    graph = fs.load("synthetic")
    owners = fs.partition(graph, num_owners=5, how="louvain", seed=0)
    for rule in ("mean", near_the_median):
        result = fs.run(owners, "fedsage", evaluate_on=graph, aggregate=rule)
        print(rule, result.accuracy)
