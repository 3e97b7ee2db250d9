"""Our optimizers are torch's, but for what torch puts around them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsage.models.optimizer import OptimizerName, make_optimizer, moments_of

THEIRS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_steps_are_those_of_torch_to_the_bit(name: OptimizerName, weight_decay: float) -> None:
    ours, theirs = model(), model()
    mine = make_optimizer(ours, name, 0.01, weight_decay)
    more = {} if name == "sgd" else {"fused": True}
    other = THEIRS[name](theirs.parameters(), lr=0.01, weight_decay=weight_decay, **more)
    for k in range(5):
        x = torch.linspace(-1, 1 + k, 20).reshape(4, 5)
        for net, optimizer in ((ours, mine), (theirs, other)):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    assert torch.is_grad_enabled()
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, two) and one.requires_grad and one.is_leaf
    kept, held = moments_of(mine, ours), moments_of(other, theirs)
    assert kept.keys() == held.keys()
    assert all(torch.equal(kept[key], held[key]) for key in kept)
