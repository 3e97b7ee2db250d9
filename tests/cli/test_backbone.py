from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import SMALL

if TYPE_CHECKING:
    from tests.cli.conftest import Call

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "my_backbone.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gat", EXAMPLE], ids=["ours", "own"])
def test_a_backbone_goes_from_run_to_report(fedsage: Call, tmp_path: Path, name: str) -> None:
    words = [*SMALL, "--set", f"model.backbone={name}", "--out", f"{tmp_path}/run"]
    assert fedsage("run", "--method", "fedsage", *words).code == 0
    predict = ["predict", "--model", f"{tmp_path}/run", "--data", "synthetic"]
    predict += ["--out", f"{tmp_path}/predicted.csv"]
    done = fedsage(*predict)
    if name == EXAMPLE:
        assert done.code == 2 and "--backbone path.py" in done.err
        done = fedsage(*predict, "--backbone", EXAMPLE)
    assert done.code == 0, done.err
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 91
    done = fedsage("report", f"{tmp_path}/run", "--out", f"{tmp_path}/report.html")
    assert done.code == 0, done.err


def test_a_misspelt_backbone_is_refused_before_anything_is_loaded(fedsage: Call) -> None:
    done = fedsage("run", "--dataset", "nowhere", "--set", "model.backbone=gatt")
    assert done.code == 2 and "Did you mean 'gat'?" in done.err
