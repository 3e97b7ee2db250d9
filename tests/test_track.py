from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fedsage as fs
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.runs import track as track_module
from fedsage.runs.events import HistoryLine
from fedsage.runs.record import RunRecord
from fedsage.runs.track import TRACKERS, Tracking, check_trackers, flat, track
from tests.cli.conftest import SMALL, fedsage  # noqa: F401

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytest.importorskip("tensorboard")
BOTH_PHASES = (
    *SMALL, "--method", "fedsage+neighgen",
    "--set", "neighgen.rounds_gen=2", "--set", "neighgen.batch_size=16",
)  # fmt: skip
FOLDERS = {
    "model": ["model.json", "model.safetensors"],
    "report": ["report.html"],
    "result": ["history.jsonl", "result.json"],
}


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve in a folder of events, as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: [(one.step, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


@pytest.mark.slow
def test_tensorboard_reads_back_what_history_says(fedsage: Call) -> None:  # noqa: F811
    done = fedsage("run", *BOTH_PHASES, "--track", "tensorboard", "--out", "r", "--json")
    assert done.code == 0, done.err
    curves = events(Path("r/tensorboard"))
    lines = [json.loads(line) for line in Path("r/history.jsonl").read_text().splitlines()]
    for phase, before in (("mending", 0), ("training", 2)):
        rounds = [line for line in lines if line["phase"] == phase]
        steps = [before + line["round"] + 1 for line in rounds]  # one axis for both phases
        losses = [pytest.approx(line["loss"]) for line in rounds]
        assert curves[f"{phase}/loss"] == list(zip(steps, losses, strict=True))
        up = [pytest.approx(line["bytes"]["up"]) for line in rounds]
        sent = list(zip(steps, up, strict=True))
        assert curves[f"{phase}/bytes_up"] == sent
        full = [pytest.approx(line["bytes_full"]["down"]) for line in rounds]
        assert [value for _, value in curves[f"{phase}/bytes_full_down"]] == full
        assert len(curves[f"{phase}/seconds"]) == len(rounds)
    assert len(curves["mending/loss_feature"]) == 2 and len(curves["training/validation"]) == 2
    accuracy = json.loads(done.out)["accuracy"]
    assert "bytes_full_up/training" in curves
    assert curves["accuracy/global"] == [(4, pytest.approx(accuracy["global"]))]


@pytest.mark.slow
def test_a_run_that_is_done_again_leaves_no_old_curve(fedsage: Call) -> None:  # noqa: F811
    words = ["compare", *SMALL, "--methods", "locsage", "--seeds", "1", "--out", "c"]
    for _ in range(2):
        done = fedsage(*words, "--track", "tensorboard,tensorboard", "--force")
        assert done.code == 0, done.err
    curves = events(Path("c/locsage-seed0/tensorboard"))
    assert [step for step, _ in curves["training/owner2/loss"]] == [1, 2]


@pytest.mark.slow
def test_a_user_s_own_loop_can_be_tracked(
    graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    settings = {"classifier": {"rounds_c": 2}}
    with track(["tensorboard"], tmp_path, settings) as tracking:
        result = fs.run(
            owners, "fedsage", evaluate_on=graph, settings=settings, callbacks=[tracking]
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


class Kept:
    """A tracker that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def round(self, line: HistoryLine, step: int) -> None:
        self.told.append((f"{line.phase} of {line.owner}", step))

    def result(self, record: RunRecord, step: int) -> None:
        self.told.append(("result", step))

    def files(self, kind: str, paths: Sequence[Path]) -> None:
        self.told.append((kind, [path.name for path in paths]))

    def close(self) -> None:
        self.told.append(("close", 0))


@pytest.mark.slow
def test_steps_go_on_from_phase_to_phase_and_begin_anew_for_every_local_model(
    graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    kept = Kept()
    tracking = Tracking([kept])
    few = {"neighgen": {"rounds_gen": 2, "batch_size": 8}, "classifier": {"rounds_c": 2}}
    way = {"mend": {"how": "neighgen"}}
    result = fs.run(
        owners, "locsage+", evaluate_on=graph, settings=few | way, callbacks=[tracking],
        out=tmp_path / "r",
    )  # fmt: skip
    tracking.result(result.record)
    tracking.files(tmp_path / "r")
    alone = [("mending", 1), ("mending", 2), ("training", 3), ("training", 4)]
    told = [(f"{phase} of {i}", step) for i in range(3) for phase, step in alone]
    assert kept.told[:12] == told and kept.told[12] == ("result", 4)
    files = dict(kept.told[13:])
    assert sorted(files["result"]) == FOLDERS["result"] and "report" not in files


def test_a_tracker_that_cannot_start_leaves_no_other_one_open(tmp_path: Path) -> None:
    opened = Kept()
    TRACKERS("opened")(lambda folder, settings: opened)
    TRACKERS("refusing")(refusing)
    try:
        with (
            pytest.raises(ConfigError, match="no account"),
            track(["opened", "refusing"], tmp_path, {}),
        ):
            pass
    finally:
        del TRACKERS.entries["", "opened"], TRACKERS.entries["", "refusing"]
    assert opened.told == [("close", 0)]


def refusing(folder: Path, settings: Mapping[str, Any]) -> Kept:
    raise ConfigError("no account")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_has_one_axis_and_the_files_of_the_run(fedsage: Call) -> None:  # noqa: F811
    mlflow = pytest.importorskip("mlflow")
    done = fedsage("run", *BOTH_PHASES, "--track", "mlflow", "--out", "r", "--json")
    assert done.code == 0, done.err
    client = mlflow.MlflowClient(f"sqlite:///{Path('r/mlflow.db').resolve()}")
    experiment = client.get_experiment_by_name("fedsage").experiment_id
    [run] = client.search_runs([experiment])
    name = run.info.run_id

    def steps(curve: str) -> list[int]:
        return [point.step for point in client.get_metric_history(name, curve)]

    assert steps("mending/loss") == [1, 2] and steps("training/loss") == [3, 4]
    assert steps("accuracy/global") == [4] and run.info.status == "FINISHED"
    assert run.data.params["neighgen.rounds_gen"] == "2"
    found = {
        kind.path: [Path(one.path).name for one in client.list_artifacts(name, kind.path)]
        for kind in client.list_artifacts(name)
    }
    assert found == FOLDERS
    assert not Path("mlruns").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of W&B's own
def test_wandb_keeps_a_run_on_this_machine_without_an_account(
    fedsage: Call,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytest.importorskip("wandb")
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = fedsage("run", *BOTH_PHASES, "--track", "wandb", "--out", "r", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["out"] == "r"  # W&B prints nothing where results go
    [file] = Path("r/wandb").glob("offline-run-*/run-*.wandb")
    records = list(wandb_records(file.read_bytes()))
    lines = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json)
         for item in one.history.item}
        for one in records if one.WhichOneof("record_type") == "history"
    ]  # fmt: skip
    assert [line["step"] for line in lines if "mending/loss" in line] == [1, 2]
    assert [line["step"] for line in lines if "training/loss" in line] == [3, 4]
    made = [one.artifact for one in records if one.WhichOneof("record_type") == "artifact"]
    assert FOLDERS == {
        one.type: sorted(content.path for content in one.manifest.contents) for one in made
    }
    [end] = [one.exit for one in records if one.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 0


def wandb_records(raw: bytes) -> Iterator[Any]:
    """What W&B wrote: a header of 7 bytes, then fragments in blocks of 32 KiB, as LevelDB's."""
    from wandb.proto import wandb_internal_pb2

    at, held = 7, b""
    while at + 7 <= len(raw):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", raw, at)
        held += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last of several
            yield wandb_internal_pb2.Record.FromString(held)
            held = b""
