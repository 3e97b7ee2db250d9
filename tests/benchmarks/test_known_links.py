"""The figure docs/gains.svg: an error only where several seeds tell of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.known_links import GAINS, QUERIED, draw_gains
from fedsage.reproduce.links import BASE

pytest.importorskip("matplotlib")


def study(seeds: Sequence[int]) -> dict[str, Any]:
    """Runs of all methods on Cora; gains differ from seed to seed."""
    runs = [
        {
            "dataset": "cora", "method": method, "known": 0, "seed": seed,
            "accuracy": dict.fromkeys(QUERIED, 0.8 + 0.01 * k * (1 + seed)),
        }
        for k, method in enumerate((BASE, *GAINS))
        for seed in seeds
    ]  # fmt: skip
    return {"runs": runs}


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "bars"), [((0,), 0), ((0, 1), len(GAINS) * len(QUERIED))])
def test_one_seed_has_no_error_bar(seeds: Sequence[int], bars: int, tmp_path: Path) -> None:
    from matplotlib import pyplot

    draw_gains(study(seeds), tmp_path / "gains.svg")
    figure = pyplot.figure(pyplot.get_fignums()[-1])
    lines = [
        line for axes in figure.axes for one in axes.collections for line in one.get_segments()
    ]
    assert sum(len(line) == 2 and bool(np.isfinite(line).all()) for line in lines) == bars
    pyplot.close(figure)
