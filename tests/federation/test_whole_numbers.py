"""Runs in whole numbers between machines: the bits of one process, whoever is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsage.federation.server.serve import serve
from fedsage.runs.events import ignore_event
from tests.federation.conftest import NAMES, SiteEngine, Stop, config_for, stop_after
from tests.federation.test_faults import Away
from tests.federation.test_serve import Make, in_process

FEW = {"how": "low-rank", "rank": 1}
METHODS = pytest.mark.parametrize("method", ["fedsage+neighgen", "fedsage+shared"])


@pytest.mark.slow
@METHODS
def test_the_model_is_the_one_of_a_run_in_one_process(
    method: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    config = config_for(method, traffic=FEW)
    engine = SiteEngine(sites())
    there = serve(config, engine, NAMES, "r1", "1.0", tmp_path / "server", ignore_event)
    assert there.record.model_sha256 == in_process(config, hospitals).record.model_sha256
    asked = {name for _, name in engine.log}
    assert asked & {"answer_offers", "change_shared_neighgen"}
    assert not asked & {"feed_forward", "update_shared_neighgen"}


@pytest.mark.slow
def test_a_run_that_was_stopped_again_and_again_goes_on_from_the_last_round(
    sites: Make, tmp_path: Path
) -> None:
    """NeighGen's run is stopped in ``test_serve.py``."""
    config, folder = config_for("fedsage+shared", traffic=FEW), tmp_path / "server"
    wanted = serve(config, SiteEngine(sites()), NAMES, "w", "1.0", tmp_path / "w", ignore_event)
    for rounds in (1, 3, 5):
        with pytest.raises(Stop):
            serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(rounds))
    again = serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, ignore_event)
    assert again.record.model_sha256 == wanted.record.model_sha256


@pytest.mark.slow
@METHODS
def test_a_run_resumes_after_an_owner_missed_a_round(
    method: str, sites: Make, tmp_path: Path
) -> None:
    config = config_for(method, traffic=FEW, neighgen={"rounds_gen": 6})
    mending = ("local_offer", "answer_offers", "update_by_answers", "change_shared_neighgen")

    def gone(name: str, t: int) -> bool:
        return name in mending and t == 2

    whole = serve(config, Away(sites(), gone), NAMES, "w", "1.0", tmp_path / "w", ignore_event)
    folder = tmp_path / "server"
    for rounds in (4, 5):
        with pytest.raises(Stop):
            serve(config, Away(sites(), gone), NAMES, "r", "1.0", folder, stop_after(rounds))
    again = serve(config, Away(sites(), gone), NAMES, "r", "1.0", folder, ignore_event)
    assert again.record.resumed == 2 and again.record.missed > 0
    assert again.record.model_sha256 == whole.record.model_sha256
