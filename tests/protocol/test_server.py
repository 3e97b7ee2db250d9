from __future__ import annotations

import pytest
import torch

from fedsage.errors import ProtocolError
from fedsage.protocol.messages import Hits, added
from fedsage.protocol.server import average, share_of_hits


def test_the_plain_mean_is_procedure_b() -> None:
    g = torch.Generator().manual_seed(0)
    phis = [
        {"w": torch.randn(3, 2, generator=g), "b": torch.randn(2, generator=g)}
        for _ in range(4)
    ]
    mean = average(phis, [1.0] * 4)
    for name in ("w", "b"):
        expected = sum((phi[name] for phi in phis), torch.zeros_like(mean[name])) / 4
        torch.testing.assert_close(mean[name], expected)


def test_weights_count_training_nodes() -> None:
    phis = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([5.0])}]
    assert average(phis, [30.0, 10.0])["w"].item() == pytest.approx(2.0)


def test_the_mean_of_one_is_itself_to_the_bit() -> None:
    phi = {"w": torch.randn(50, 3, generator=torch.Generator().manual_seed(0))}
    assert torch.equal(average([phi], [17.0])["w"], phi["w"])


def test_no_reply_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="no owner returned"):
        average([], [])


def test_hits_are_counted_over_all_owners_together() -> None:
    hits = added(Hits(1, 2, 2, 2), Hits(9, 7, 8, 10))
    assert share_of_hits(hits) == pytest.approx(10 / 12)
    assert share_of_hits(hits, "mended") == pytest.approx(9 / 12)
    assert share_of_hits(Hits(0, 0, 0, 0)) == 0
