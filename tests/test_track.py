from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fedsage as fs
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.runs import track as track_module
from fedsage.runs.track import check_trackers, flat, track
from tests.cli.conftest import SMALL, fedsage  # noqa: F401

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytest.importorskip("tensorboard")


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve in a folder of events, as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: [(one.step, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_tensorboard_reads_back_what_history_says(fedsage: Call) -> None:  # noqa: F811
    done = fedsage("run", *SMALL, "--method", "fedsage+neighgen", "--track", "tensorboard",
                   "--set", "neighgen.rounds_gen=2", "--set", "neighgen.batch_size=16",
                   "--out", "r", "--json")  # fmt: skip
    assert done.code == 0, done.err
    curves = events(Path("r/tensorboard"))
    lines = [json.loads(line) for line in Path("r/history.jsonl").read_text().splitlines()]
    for phase in ("mending", "training"):
        rounds = [line for line in lines if line["phase"] == phase]
        told = [(line["round"] + 1, pytest.approx(line["loss"])) for line in rounds]
        assert curves[f"{phase}/loss"] == told
        sent = [(line["round"] + 1, pytest.approx(line["bytes"]["up"])) for line in rounds]
        assert curves[f"{phase}/bytes_up"] == sent
        full = [pytest.approx(line["bytes_full"]["down"]) for line in rounds]
        assert [value for _, value in curves[f"{phase}/bytes_full_down"]] == full
        assert len(curves[f"{phase}/seconds"]) == len(rounds)
    assert len(curves["mending/loss_feature"]) == 2 and len(curves["training/validation"]) == 2
    accuracy = json.loads(done.out)["accuracy"]
    assert "bytes_full_up/training" in curves
    assert curves["accuracy/global"] == [(0, pytest.approx(accuracy["global"]))]


def test_a_run_that_is_done_again_leaves_no_old_curve(fedsage: Call) -> None:  # noqa: F811
    words = ["compare", *SMALL, "--methods", "locsage", "--seeds", "1", "--out", "c"]
    for _ in range(2):
        done = fedsage(*words, "--track", "tensorboard,tensorboard", "--force")
        assert done.code == 0, done.err
    curves = events(Path("c/locsage-seed0/tensorboard"))
    assert [step for step, _ in curves["training/owner2/loss"]] == [1, 2]


def test_a_user_s_own_loop_can_be_tracked(
    graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    settings = {"classifier": {"rounds_c": 2}}
    with track(["tensorboard"], tmp_path, settings) as tracking:
        rounds = [lambda event: tracking.round(event.history)]
        result = fs.run(
            owners, "fedsage", evaluate_on=graph, settings=settings, callbacks=rounds
        )
        tracking.result(result.record)
    curves = events(tmp_path / "tensorboard")
    assert len(curves["training/loss"]) == 2 and "macro_f1" in curves


def test_what_is_not_installed_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch,
    fedsage: Call,  # noqa: F811
) -> None:
    monkeypatch.setattr(track_module, "find_spec", lambda name: None)
    done = fedsage("run", *SMALL, "--track", "tensorboard", "--out", "r")
    assert done.code == 2 and "pip install 'fedsage[track]'" in done.err
    assert not Path("r").exists()
    with pytest.raises(ConfigError, match="Did you mean 'mlflow'"):
        check_trackers(["mlfow"])


def test_settings_are_known_by_their_whole_name() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {
        "a.b.c": 1,
        "a.d": [2],
        "e": None,
    }
