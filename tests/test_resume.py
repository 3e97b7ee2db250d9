"""A run that was killed goes on, and ends in the model of an undisturbed run."""

from __future__ import annotations

import time
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.kills import killed_run, model_of
from fedsage.checkpoint import store
from fedsage.checkpoint import store as checkpoint_module
from fedsage.config import Config, load_config
from fedsage.errors import StorageError
from fedsage.runs.events import Event, HistoryLine
from fedsage.runs.execute import run_config
from tests.small import SMALL

GEN = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 4}
METHODS = [
    "fedsage", "fedsage+neighgen", "fedsage+shared", "fedsage+subspace", "fedsage+classes",
    "fedsage+copy", "locsage", "locsage+", "globsage", "oracle",
]  # fmt: skip


def small(method: str, **more: dict[str, object]) -> Config:
    return load_config(SMALL, {"neighgen": GEN, "run": {"method": method}}, more)


@pytest.fixture(autouse=True)
def every_round_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SECONDS", 0.0)


class Stop(Exception):
    """Stands for a kill between two rounds."""


def stopped_after(config: Config, rounds: int, checkpoint: Path) -> None:
    seen: list[HistoryLine] = []

    def observe(event: Event) -> None:
        if event.line is not None:
            seen.append(event.line)
            if len(seen) == rounds:
                raise Stop

    with pytest.raises(Stop):
        run_config(config, observe, checkpoint=checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "moments"), [(method, "averaged") for method in METHODS] + [("fedsage", "own")]
)
def test_every_method_goes_on_after_any_round(
    method: str, moments: str, tmp_path: Path
) -> None:
    config = small(method, classifier={"moments": moments})
    undisturbed = run_config(config)
    whole = undisturbed.history
    for rounds in (2, len(whole) - 1):
        stopped_after(config, rounds, tmp_path)
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.resumed == 2
    assert again.record.model_sha256 == undisturbed.record.model_sha256
    assert again.accuracy == undisturbed.accuracy
    up = again.record.bytes["training"]["up"]
    assert up >= undisturbed.record.bytes["training"]["up"]  # φ is sent once more
    told = [(line.phase, line.round, line.owner, line.loss) for line in again.history]
    assert told == [(line.phase, line.round, line.owner, line.loss) for line in whole]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fedsage", "fedsage+neighgen"])
def test_killed_at_random_moments_it_ends_in_the_same_model(
    method: str, tmp_path: Path
) -> None:
    config = small(method)
    begin = time.perf_counter()
    wanted, _ = model_of(config, None)
    longest = time.perf_counter() - begin
    for seed in range(3):
        stream = np.random.default_rng(seed)
        found = killed_run(config, tmp_path / str(seed), 3, longest, stream)
        assert found.model_sha256 == wanted


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage", "fedsage+neighgen"])
def test_a_run_keeps_a_round_only_now_and_then_and_goes_on_from_there(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(method, run={"workers": 2}, classifier={"rounds_c": 9})
    undisturbed = run_config(config)
    ticks = count()
    monkeypatch.setattr(store, "SECONDS", 3.0)  # a round takes a second: every third is kept
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    stopped_after(config, len(undisturbed.history) - 1, tmp_path)
    names = [path.stem for path in sorted(tmp_path.glob("server/server-training-*.state"))]
    assert {int(b[-5:]) - int(a[-5:]) for a, b in pairwise(names)} == {3}
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.resumed == 1
    assert again.record.model_sha256 == undisturbed.record.model_sha256


def damage(path: Path, how: str) -> None:
    body = bytearray(path.read_bytes())
    if how == "cut short":
        path.write_bytes(bytes(body[: len(body) // 2]))
    elif how == "altered":
        body[-3] ^= 1
        path.write_bytes(bytes(body))
    else:
        path.write_bytes(b"")


@pytest.fixture(scope="module")
def mended_model() -> str:
    """The checksum of the model that nothing disturbed."""
    return model_of(small("fedsage+neighgen"), None)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whose", "what"), [("server", "server-mending"), ("owner-1", "update_by_answers")]
)
@pytest.mark.parametrize("how", ["cut short", "altered", "empty"])
def test_a_damaged_checkpoint_is_found_out_and_the_one_before_is_used(
    how: str, whose: str, what: str, mended_model: str, tmp_path: Path
) -> None:
    config = small("fedsage+neighgen")
    stopped_after(config, 4, tmp_path)
    newest = max((tmp_path / whose).glob(f"{what}-*.state"))
    damage(newest, how)
    again = run_config(config, checkpoint=tmp_path)
    assert again.record.model_sha256 == mended_model and again.record.resumed == 1


@pytest.mark.slow
def test_starting_again_counts_also_where_it_gets_no_further(tmp_path: Path) -> None:
    config = small("fedsage")
    stopped_after(config, 2, tmp_path)
    stopped_after(config, 1, tmp_path)  # the first line is of a round that was kept
    assert run_config(config, checkpoint=tmp_path).record.resumed == 2


@pytest.mark.slow
def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("fedsage")
    stopped_after(config, 2, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.state")}

    def full(path: Path, *pieces: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "write_pieces", full)
        with pytest.raises(StorageError, match=r"No space left.*--resume"):
            run_config(config, checkpoint=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.state")} == before
    assert run_config(config, checkpoint=tmp_path).record.resumed == 1
