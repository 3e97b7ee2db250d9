from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsage.config import ClassifierConfig
from fedsage.models.optimizer import (
    Pace,
    expected_change,
    factored,
    make_optimizer,
    moments_for,
    next_first,
    root_of,
)
from fedsage.protocol.changes.weights import (
    as_weight,
    directions,
    is_large,
    random_directions,
    rounded,
    spanned,
    tall,
)
from fedsage.rng import generator


def moved_by_adam(how: ClassifierConfig, start: torch.Tensor, memory: dict, steps: int):
    """How far torch's Adam takes a weight without a gradient of its own."""
    layer = torch.nn.Linear(1, 1, bias=False)
    layer.weight = torch.nn.Parameter(start.clone())
    optimizer = make_optimizer(layer, how.optimizer, how.eta, how.weight_decay)
    optimizer.state[layer.weight] = {k.rpartition(".")[2]: v.clone() for k, v in memory.items()}
    for _ in range(steps):
        layer.weight.grad = torch.zeros_like(start)
        optimizer.step()
    return layer.weight.detach() - start


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("weight_decay", [0.0, 5e-4])
def test_momentum_and_weight_decay_take_adam_where_is_expected(
    weight_decay: float, optimizer: str
) -> None:
    how = ClassifierConfig(eta=3e-3, weight_decay=weight_decay, optimizer=optimizer)
    draws = torch.Generator().manual_seed(0)
    start = torch.randn(6, 9, generator=draws)
    root = torch.rand(6, 9, generator=draws) * 1e-2 + 1e-2
    first = torch.randn(6, 9, generator=draws) * root
    pace = Pace(steps=9000.0, last=4.0)
    true = moved_by_adam(how, start, moments_for("w", first, root, pace), 4)
    found = expected_change(start, first, root, pace, how)
    assert (found - true).norm() < 0.02 * true.norm()


@pytest.mark.parametrize("steps", [1, 3, 20])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-3])
def test_a_constant_gradient_gives_the_first_moment_back(
    steps: int, weight_decay: float
) -> None:
    how = ClassifierConfig(eta=1e-4, weight_decay=weight_decay)
    draws = torch.Generator().manual_seed(1)
    start, gradient = torch.randn(5, 4, generator=draws), torch.randn(5, 4, generator=draws)
    first = torch.randn(5, 4, generator=draws)
    root = torch.full((5, 4), 50.0)  # far above the gradient, so that it stays
    before = Pace(steps=9000.0, last=float(steps))
    layer = torch.nn.Linear(4, 5, bias=False)
    layer.weight = torch.nn.Parameter(start.clone())
    optimizer = make_optimizer(layer, "adam", how.eta, how.weight_decay)
    memory = moments_for("w", first, root, before)
    optimizer.state[layer.weight] = {k.rpartition(".")[2]: v.clone() for k, v in memory.items()}
    for _ in range(steps):
        layer.weight.grad = gradient.clone()
        optimizer.step()
    new = layer.weight.detach() - start - expected_change(start, first, root, before, how)
    found = next_first(first, new, start, root, before.after(float(steps)), how)
    true = optimizer.state[layer.weight]["exp_avg"]
    torch.testing.assert_close(found, true, rtol=5e-2, atol=3e-2)


def test_second_moments_of_rank_one_come_back_from_rows_and_columns() -> None:
    draws = torch.Generator().manual_seed(2)
    rows, columns = torch.rand(7, generator=draws), torch.rand(30, generator=draws)
    second = rows[:, None] * columns[None, :]
    factors = factored("w", second * (1 - 0.999**10), 10.0)
    found = root_of("w", factors, second.shape)
    torch.testing.assert_close(found, second.sqrt(), rtol=1e-5, atol=1e-7)
    bias = factored("b", rows, 10.0)
    assert list(bias) == ["rows/b"] and root_of("b", bias, rows.shape).shape == rows.shape


@pytest.mark.parametrize("shape", [(64, 2866), (2866, 64), (8, 3, 70)])
def test_a_change_of_low_rank_comes_back_from_its_products(shape: tuple[int, ...]) -> None:
    draws = np.random.default_rng(0)
    long, short = tall(torch.empty(shape)).shape
    q = rounded(random_directions(short, 4, draws))
    change = spanned(torch.from_numpy(draws.standard_normal((long, 4))), q)
    again = as_weight(spanned(change @ directions(q), q), torch.Size(shape))
    torch.testing.assert_close(tall(again), change, rtol=0, atol=5e-3)


def test_products_of_whole_numbers_are_exact_whatever_their_order() -> None:
    draws = np.random.default_rng(0)
    q = rounded(random_directions(64, 16, generator(0, "q")))
    left = torch.from_numpy(draws.integers(-127, 128, (500, 16))).double()
    left *= torch.from_numpy(2.0 ** draws.integers(-24, 1, 16))  # units of columns
    order = torch.from_numpy(draws.permutation(16))
    assert torch.equal(spanned(left, q), spanned(left[:, order], q[:, order]))
    assert torch.equal(spanned(left, q)[::2], spanned(left[::2], q))


def test_what_is_small_goes_whole() -> None:
    assert is_large(torch.Size([64, 2866]), 8) and is_large(torch.Size([64, 1000]), 16)
    assert not is_large(torch.Size([32]), 8) and not is_large(torch.Size([32, 64]), 8)
    assert not is_large(torch.Size([]), 8)
