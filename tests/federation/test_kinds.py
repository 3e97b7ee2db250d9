"""Columns of every kind between machines: the same scale and model as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.models.classifier import load_models
from fedsage.runs.events import ignore_event
from fedsage.runs.execute import run_config
from tests.federation.conftest import NAMES, TINY, SiteEngine, config_for
from tests.small import traffic_of

SCHEMA = """classes = ["ill", "well", "other"]
id = "patient"
unlisted_classes = "other"
weight = "hours"
time = "since"
[features]
age = { kind = "number", missing = "indicator" }
visits = { kind = "count", missing = "mean" }
smoker = { kind = "boolean", missing = "mean" }
admitted = { kind = "date", cyclic = ["year", "week"], missing = "mean" }
ward = { kind = "category", categories = ["A", "B"], missing = "unknown", unlisted = "other" }
note = { kind = "text", columns = 8, missing = "indicator" }
"""


@pytest.fixture
def untidy(tmp_path: Path) -> Path:
    """Three owners, each with its own separator and its own empty cells."""
    root = tmp_path / "untidy"
    root.mkdir()
    (root / "schema.toml").write_text(SCHEMA)
    for k, name in enumerate(NAMES):
        sign, empty = ";,\t"[k], ("", "NA", "none")[k]
        rows = [["patient", "age", "visits", "smoker", "admitted", "ward", "note", "label"]]
        for i in range(60):
            sick = i % 3 == 0
            cells = [
                str(30 + i % 20 + 9 * sick),
                str(i % 7 * k),
                "ja" if sick else "nein",
                f"2024-{1 + i % 12:02}-{1 + i % 28:02}",
                "ABC"[i % 3],
                "fever and cough" if sick else "broken leg",
                "ill" if sick else "well",
            ]
            cells = [empty if (i + j) % 17 == 0 else cell for j, cell in enumerate(cells)]
            rows.append([f"{name}{i}", *cells])
        rows[5][-1] = "plague"
        links = [["source", "target", "hours", "since"]]
        for i in range(60):
            met = [str(1 + i % 5), f"2024-03-{1 + i % 28:02}" if i % 4 else empty]
            links.append([f"{name}{i}", f"{name}{(i + 3) % 60}", *met])
        (root / name).mkdir()
        for file, table in (("nodes.csv", rows), ("edges.csv", links)):
            text = "".join(sign.join(row) + "\n" for row in table)
            (root / name / file).write_text(text)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("level", [pytest.param("open", marks=pytest.mark.slow), "sums"])
def test_owners_with_columns_of_every_kind_train_the_model_of_one_process(
    untidy: Path, tmp_path: Path, level: str
) -> None:
    config = config_for(
        "fedsage", traffic=traffic_of("low-rank", rank=1), privacy={"level": level}
    )
    keys = known_keys(range(len(NAMES)))
    sites = [
        Site(n, read_owned(untidy / n), tmp_path / n, "1.0", print, keys[i], TINY)
        for i, n in enumerate(NAMES)
    ]
    there = serve(
        config, SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "server", ignore_event
    )
    data = config.data.model_copy(update={"dataset": str(untidy)})
    plain = config.privacy.model_copy(update={"level": "open"})
    here = run_config(config.model_copy(update={"data": data, "privacy": plain}))
    assert there.record.model_sha256 == here.record.model_sha256
    (kept,) = load_models(tmp_path / "east" / "r")
    assert kept.schema == here.model.schema and kept.scale is not None
    assert here.model.scale is not None
    assert kept.scale.mean.tolist() == here.model.scale.mean.tolist()
    assert len(kept.scale.mean) == 4  # age, visits, smoker, admitted
