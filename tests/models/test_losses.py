from __future__ import annotations

import math

import torch

from fedsage.models.losses import classification_loss


def test_the_classification_loss_is_equation_2() -> None:
    logits = torch.tensor([[1.0, -0.5, 2.0], [0.0, 0.3, -1.0]])
    y = torch.tensor([2, 0])
    expected = 0.0
    for v in range(2):
        total = sum(math.exp(value) for value in logits[v].tolist())
        expected -= math.log(math.exp(float(logits[v, y[v]])) / total)
    torch.testing.assert_close(classification_loss(logits, y), torch.tensor(expected / 2))
