"""Rounds and results for other people's dashboards: TensorBoard, MLflow.

Fed by the same lines and records as ``history.jsonl`` and ``result.json``; training never
imports it. The libraries are extras: TensorBoard comes with ``fedsage[track]``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fedsage.errors import ConfigError
from fedsage.registry import Registry
from fedsage.runs.events import HistoryLine
from fedsage.runs.record import RunRecord

Make: TypeAlias = "Callable[[Path, Mapping[str, Any]], Tracker]"
TRACKERS: Registry[Make] = Registry("tracker", "tracker", "fedsage.runs.track")
PIP = {"tensorboard": "fedsage[track]", "mlflow": "mlflow"}  # what to install


@runtime_checkable
class Tracker(Protocol):
    """One dashboard."""

    def round(self, line: HistoryLine) -> None:
        """A round has ended."""

    def result(self, record: RunRecord) -> None:
        """The run has ended."""

    def close(self) -> None:
        """Write what is still in memory."""


@TRACKERS("tensorboard")
class TensorBoard:
    """Events in ``FOLDER/tensorboard``: curves by round, results beside settings."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.settings = flat(settings)
        place = folder / "tensorboard"
        for old in place.glob("events.out.tfevents.*"):  # of a run that this one replaces
            old.unlink()
        self.writer: Any = SummaryWriter(str(place))

    def round(self, line: HistoryLine) -> None:
        """One point on every curve."""
        for name, value in values_of(line).items():
            self.writer.add_scalar(name, value, line.round + 1)

    def result(self, record: RunRecord) -> None:
        """A line in TensorBoard's table of settings and results."""
        settings = {key: value if isinstance(value, (bool, int, float, str)) else str(value)
                    for key, value in self.settings.items()}  # fmt: skip
        self.writer.add_hparams(settings, results_of(record), run_name=".")

    def close(self) -> None:
        """End the file."""
        self.writer.close()


@TRACKERS("mlflow")
class MLflow:
    """A run on the server of ``$MLFLOW_TRACKING_URI``, or in ``FOLDER/mlflow.db``."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient

        folder.mkdir(parents=True, exist_ok=True)
        here = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        uri = os.environ.get("MLFLOW_TRACKING_URI", here)
        self.client: Any = MlflowClient(uri)
        known = self.client.get_experiment_by_name("fedsage")
        experiment = known.experiment_id if known else self.client.create_experiment("fedsage")
        self.id: str = self.client.create_run(experiment, run_name=folder.name).info.run_id
        for key, value in flat(settings).items():
            self.client.log_param(self.id, key, value)

    def round(self, line: HistoryLine) -> None:
        """One point on every curve."""
        self.log(values_of(line), line.round + 1)

    def result(self, record: RunRecord) -> None:
        """The results, and that all went well."""
        self.log(results_of(record), 0)
        self.client.set_tag(self.id, "model_sha256", record.model_sha256)
        self.client.set_terminated(self.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send several values at once."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(key, value, now, step) for key, value in values.items()]
        self.client.log_batch(self.id, metrics)

    def close(self) -> None:
        """A run that did not come to a result has failed."""
        if self.client.get_run(self.id).info.status == "RUNNING":
            self.client.set_terminated(self.id, "FAILED")


class Tracking:
    """Several trackers as one, or none at all."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = list(trackers)

    def round(self, line: HistoryLine) -> None:
        """Tell all of them."""
        for tracker in self.trackers:
            tracker.round(line)

    def result(self, record: RunRecord) -> None:
        """Tell all of them."""
        for tracker in self.trackers:
            tracker.result(record)


@contextlib.contextmanager
def track(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any]
) -> Iterator[Tracking]:
    """Track one run; ``settings`` are kept beside its results.

    With ``fedsage.run``::

        with track(["tensorboard"], Path("runs/mine"), {"eta": 0.003}) as tracking:
            rounds = [lambda event: tracking.round(event.history)]
            result = fedsage.run(owners, callbacks=rounds)
            tracking.result(result.record)
    """
    check_trackers(names)
    trackers = [TRACKERS.find(name).thing(folder, settings) for name in names]
    try:
        yield Tracking(trackers)
    finally:
        for tracker in trackers:
            tracker.close()


def check_trackers(names: Sequence[str]) -> None:
    """Refuse, before anything is trained, what is unknown or not installed."""
    for name in names:
        TRACKERS.find(name)
        if name in PIP and find_spec(name) is None:
            raise ConfigError(
                f"--track {name} needs the package {name}, which is not installed. Install it "
                f"with: pip install '{PIP[name]}'"
            )


def values_of(line: HistoryLine) -> dict[str, float]:
    """The numbers of one round by name; a local model's under its owner.

    Bytes are those of the phase so far, as sent and as full messages would have been, seconds
    those since training began, as in ``history.jsonl``.
    """
    top = line.phase if line.owner is None else f"{line.phase}/owner{line.owner}"
    found: dict[str, float | None] = {
        "loss": line.loss,
        "validation": line.validation,
        "picked": line.picked,
        "bytes_up": line.bytes["up"],
        "bytes_down": line.bytes["down"],
        "seconds": line.seconds,
    }
    found |= {f"bytes_full_{way}": value for way, value in line.bytes_full.items()}
    found |= {f"loss_{name}": value for name, value in line.terms.items()}
    return {f"{top}/{key}": value for key, value in found.items() if value is not None}


def results_of(record: RunRecord) -> dict[str, float]:
    """The numbers that runs are compared by."""
    found: dict[str, float | None] = {
        "accuracy/global": record.accuracy["global"],
        "accuracy/local": record.accuracy["local"],
        "accuracy/validation": record.validation,
        "macro_f1": record.macro_f1,
        "cpu_seconds": record.cpu_seconds,
        "peak_rss_mb": record.peak_rss_mb,
    }
    found |= {
        f"{name}_{way}/{phase}": value
        for name, phases in (("bytes", record.bytes), ("bytes_full", record.bytes_full))
        for phase, both in phases.items()
        for way, value in both.items()
    }
    return {key: value for key, value in found.items() if value is not None}


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by their whole name: ``classifier.eta``."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found
