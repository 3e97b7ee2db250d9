"""Next month between parties: everyone begins with its own copy of what it ended with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.config import Config
from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.before_training.earlier_run import START, with_checksum
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import Served, serve
from fedsage.models.parameters import Parameters, sha256_of
from fedsage.protocol.changes.follow import News
from fedsage.protocol.changes.owner import receive_change
from fedsage.protocol.changes.server import ByChanges
from fedsage.protocol.changes.state import NO_CHANGE
from fedsage.protocol.messages import Classifier
from fedsage.runs.events import ignore_event
from fedsage.runs.execute import run_config
from fedsage.runs.run import run_into
from tests.federation.conftest import NAMES, TINY, SiteEngine, config_for
from tests.small import traffic_of

pytestmark = pytest.mark.slow  # seconds each

SUMS = {"level": "sums"}


@pytest.fixture
def june(hospitals: Path, tmp_path: Path) -> Path:
    """The same hospitals a month later: a new patient each, and a ward that nobody had."""
    for name in NAMES:
        folder = tmp_path / "june" / name
        folder.mkdir(parents=True)
        schema = (hospitals / name / "schema.toml").read_text()
        (folder / "schema.toml").write_text(schema.replace('"C"]', '"C", "D"]'))
        nodes = (hospitals / name / "nodes.csv").read_text()
        (folder / "nodes.csv").write_text(f"{nodes}{name}-new,51,80,D,ill\n")
        links = (hospitals / name / "edges.csv").read_text()
        (folder / "edges.csv").write_text(f"{links}{name}-new,{name}-0\n")
    return tmp_path / "june"


def sites_on(data: Path, home: Path) -> list[Site]:
    keys = known_keys(range(len(NAMES)))
    return [
        Site(n, read_owned(data / n), home / n, "1.0", print, keys[i], TINY)
        for i, n in enumerate(NAMES)
    ]


def served(config: Config, data: Path, home: Path, run: str) -> Served:
    engine = SiteEngine(sites_on(data, home))
    return serve(config, engine, NAMES, run, "1.0", home / "server" / run, ignore_event)


def starting(config: Config, from_: str) -> Config:
    return config.model_copy(
        update={"run": config.run.model_copy(update={"start_from": from_})}
    )


def on(config: Config, data: Path) -> Config:
    return config.model_copy(
        update={"data": config.data.model_copy(update={"dataset": str(data)})}
    )


@pytest.mark.parametrize(
    ("method", "how"),
    [("fedsage", "full"), ("fedsage", "low-rank"), ("fedsage+neighgen", "low-rank")],
)
def test_the_model_is_that_of_one_process_with_a_category_more(
    method: str, how: str, hospitals: Path, june: Path, tmp_path: Path
) -> None:
    config = config_for(method, traffic=traffic_of(how, rank=1))
    there = served(config, hospitals, tmp_path, "may")
    run_into(on(config, hospitals), tmp_path / "here")
    begun = starting(config, str(tmp_path / "here"))
    here = run_config(on(begun, june))
    again = served(with_checksum(begun), june, tmp_path, "june")
    assert here.record.model_sha256 != there.record.model_sha256
    assert again.record.model_sha256 == here.record.model_sha256
    assert again.record.accuracy_before == here.record.accuracy_before
    assert again.record.graph["features"] == there.record.graph["features"] + 1
    words = (tmp_path / "east" / "june" / "what-leaves.txt").read_text()
    assert "which columns and classes the earlier run had" in words
    assert "the earlier classifier, with which this run began" in words


def test_where_sums_are_hidden_a_run_begins_with_what_came_from_sums(
    hospitals: Path, june: Path, tmp_path: Path
) -> None:
    config = config_for("fedsage", traffic=traffic_of("low-rank", rank=1), privacy=SUMS)
    may = served(config, hospitals, tmp_path, "may")
    begun = starting(config, may.record.model_sha256)
    found = served(begun, june, tmp_path, "june")
    assert found.record.accuracy_before is not None
    assert found.record.started_from == may.record.model_sha256


def test_a_classifier_that_an_owner_never_had_is_not_begun_with(
    hospitals: Path, tmp_path: Path
) -> None:
    config = config_for("fedsage")
    served(config, hospitals, tmp_path, "may")
    with pytest.raises(ConfigError, match="no run of owner east ended with it"):
        served(starting(config, "0" * 64), hospitals, tmp_path, "june")
    with pytest.raises(ConfigError, match="no run of owner east ended with it"):
        served(starting(config, "../../etc"), hospitals, tmp_path, "july")


def test_a_model_that_was_changed_on_disk_is_not_begun_with(
    hospitals: Path, tmp_path: Path
) -> None:
    config = config_for("fedsage")
    may = served(config, hospitals, tmp_path, "may")
    served(config_for("fedsage", run={"seed": 1}), hospitals, tmp_path, "other")
    weights = (tmp_path / "west" / "other" / "model.safetensors").read_bytes()
    (tmp_path / "west" / "may" / "model.safetensors").write_bytes(weights)
    with pytest.raises(ConfigError, match="Owner west: the model of run may has been changed"):
        served(starting(config, may.record.model_sha256), hospitals, tmp_path, "june")


def handing_out(evil: Parameters) -> Callable[..., None]:
    """A server that ends an honest run by handing every owner a φ of its own choice."""

    def end(self: ByChanges, best: Classifier, t: int, last: int) -> None:
        best.phi.update(evil)
        asked = {i: News(t + 1, 0, 0.0, evil, {}, NO_CHANGE, {}) for i in self.exchange.owners}
        self.exchange.sum(receive_change, asked)

    return end


def test_a_server_gets_no_count_for_a_classifier_of_its_choice_by_two_runs(
    hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands out φ at the end of one run, and lets the next begin with it.

    The same attack succeeds where owners do not remember how they came by φ.
    """
    config = config_for("fedsage", traffic=traffic_of("low-rank", rank=1), privacy=SUMS)
    honest = served(config, hospitals, tmp_path, "april").model.phi
    evil = {name: torch.full_like(weight, 0.5) for name, weight in honest.items()}
    with monkeypatch.context() as patch:
        patch.setattr(ByChanges, "end", handing_out(evil))
        may = served(config, hospitals, tmp_path, "may")
    assert sha256_of(evil) == may.record.model_sha256
    assert may.record.accuracy["local"] == 0.0  # nobody counted for it
    begun = starting(config, may.record.model_sha256)
    with pytest.raises(PrivacyError, match="cannot tell that it came from sums"):
        served(begun, hospitals, tmp_path, "june")
    for name in NAMES:
        path = tmp_path / name / "may" / START
        known: dict[str, Any] = json.loads(path.read_text())
        assert known == {"sha256": sha256_of(evil), "from_sums": False}
        path.write_text(json.dumps(known | {"from_sums": True}))
    counted = served(begun, hospitals, tmp_path, "july").record.accuracy_before
    assert counted is not None and (counted["local"] or 0) > 0
