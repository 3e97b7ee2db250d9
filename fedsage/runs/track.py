"""Sends rounds, results and files to dashboards: TensorBoard, MLflow, Weights & Biases.

They get the same lines and records as ``history.jsonl`` and ``result.json``; training never
imports this module. The libraries are extras: ``fedsage[track]`` brings TensorBoard,
``fedsage[mlflow]`` and ``fedsage[wandb]`` the other two.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fedsage.errors import ConfigError
from fedsage.registry import Registry
from fedsage.runs.events import Event, HistoryLine
from fedsage.runs.record import RunRecord

Make: TypeAlias = "Callable[[Path, Mapping[str, Any]], Tracker]"
TRACKERS: Registry[Make] = Registry("tracker", "tracker", "fedsage.runs.track")
EXTRAS = {"tensorboard": "track", "mlflow": "mlflow", "wandb": "wandb"}  # what to install
FILES = {  # of a run's folder, by what they are
    "model": ("model.safetensors", "model.json"),
    "result": ("result.json", "history.jsonl"),
    "report": ("report.html",),
}
MLFLOW_BATCH = 100  # params that MLflow takes at once


@runtime_checkable
class Tracker(Protocol):
    """One dashboard. Steps count rounds over all phases, from 1."""

    def round(self, line: HistoryLine, step: int) -> None:
        """A round has ended."""

    def result(self, record: RunRecord, step: int) -> None:
        """The run has ended, after that many rounds."""

    def files(self, kind: str, paths: Sequence[Path]) -> None:
        """Files of the run are written: its ``model``, ``result`` or ``report``."""

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

    def round(self, line: HistoryLine, step: int) -> None:
        """One point on every curve."""
        for name, value in values_of(line).items():
            self.writer.add_scalar(name, value, step)

    def result(self, record: RunRecord, step: int) -> None:
        """A line in TensorBoard's table of settings and results."""
        settings = {key: value if isinstance(value, (bool, int, float, str)) else str(value)
                    for key, value in self.settings.items()}  # fmt: skip
        self.writer.add_hparams(settings, results_of(record), run_name=".", global_step=step)

    def files(self, kind: str, paths: Sequence[Path]) -> None:
        """TensorBoard keeps no files; those of the run are in its folder."""

    def close(self) -> None:
        """End the file."""
        self.writer.close()


@TRACKERS("mlflow")
class MLflow:
    """A run on the server of ``$MLFLOW_TRACKING_URI``, or in ``FOLDER/mlflow.db``."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        folder.mkdir(parents=True, exist_ok=True)
        here, place = folder.resolve() / "mlflow.db", folder.resolve() / "mlflow"
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self.client: Any = MlflowClient(server or f"sqlite:///{here}")
        known = self.client.get_experiment_by_name("fedsage")
        files = None if server else place.as_uri()  # a server knows where its files belong
        experiment = (
            known.experiment_id if known else self.client.create_experiment("fedsage", files)
        )
        self.id: str = self.client.create_run(experiment, run_name=folder.name).info.run_id
        params = iter([Param(key, str(value)) for key, value in flat(settings).items()])
        while some := list(islice(params, MLFLOW_BATCH)):
            self.client.log_batch(self.id, params=some)

    def round(self, line: HistoryLine, step: int) -> None:
        """One point on every curve."""
        self.log(values_of(line), step)

    def result(self, record: RunRecord, step: int) -> None:
        """The results, and that all went well."""
        self.log(results_of(record), step)
        self.client.set_tag(self.id, "model_sha256", record.model_sha256)
        self.client.set_terminated(self.id)

    def files(self, kind: str, paths: Sequence[Path]) -> None:
        """Artifacts of the run, in a folder for each kind."""
        for path in paths:
            self.client.log_artifact(self.id, str(path), kind)

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


@TRACKERS("wandb")
class WandB:
    """A run of Weights & Biases in project ``$WANDB_PROJECT``, or ``fedsage`` if not set.

    With ``WANDB_MODE=offline`` it needs no account and stays in ``FOLDER/wandb``.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "fedsage"),
                name=folder.name,
                dir=str(folder.resolve()),
                config=flat(settings),
                settings=wandb.Settings(console="off"),  # it need not capture our output
                reinit="create_new",
            )
        except (wandb.errors.UsageError, wandb.errors.CommError) as error:
            first = str(error).strip().splitlines()[0].rstrip(".")
            raise ConfigError(
                f"--track wandb could not start a run ({first}). Log in with 'wandb login', or "
                "set WANDB_MODE=offline to keep the run on this machine."
            ) from None
        self.failed = True  # until there is a result
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def round(self, line: HistoryLine, step: int) -> None:
        """One point on every curve."""
        self.run.log({"step": step, **values_of(line)})

    def result(self, record: RunRecord, step: int) -> None:
        """The results, as the summary of the run."""
        self.run.summary.update({"model_sha256": record.model_sha256, **results_of(record)})
        self.failed = False

    def files(self, kind: str, paths: Sequence[Path]) -> None:
        """One artifact for each kind."""
        import wandb

        artifact = wandb.Artifact(f"{kind}-{self.run.id}", type=kind)
        for path in paths:
            artifact.add_file(str(path))
        self.run.log_artifact(artifact)

    def close(self) -> None:
        """A run that did not come to a result has failed."""
        self.run.finish(exit_code=int(self.failed))


class Tracking:
    """Several trackers as one, or none at all; itself a callback of :func:`fedsage.run`."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = list(trackers)
        self.steps: Counter[int | None] = Counter()  # rounds so far of each local model

    def __call__(self, event: Event) -> None:
        """Something happened in a run; rounds are passed on."""
        if event.line is not None:
            self.round(event.line)

    def round(self, line: HistoryLine) -> None:
        """Tell all of them; the step goes on where the phase before has ended."""
        self.steps[line.owner] += 1
        for tracker in self.trackers:
            tracker.round(line, self.steps[line.owner])

    def result(self, record: RunRecord) -> None:
        """Tell all of them."""
        for tracker in self.trackers:
            tracker.result(record, max(self.steps.values(), default=0))

    def files(self, folder: Path) -> None:
        """Hand over the model, the result and the report that a run's folder holds."""
        for kind, names in FILES.items():
            found = [folder / name for name in names if (folder / name).is_file()]
            for tracker in self.trackers if found else ():
                tracker.files(kind, found)


@contextlib.contextmanager
def track(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any]
) -> Iterator[Tracking]:
    """Track one run; ``settings`` are kept beside its results.

    With ``fedsage.run``::

        with track(["tensorboard"], Path("runs/mine"), {"eta": 0.003}) as tracking:
            result = fedsage.run(owners, callbacks=[tracking])
            tracking.result(result.record)
    """
    check_trackers(names)
    with contextlib.ExitStack() as stack:
        trackers = []
        for name in names:
            trackers.append(TRACKERS.find(name).thing(folder, settings))
            stack.callback(trackers[-1].close)
        yield Tracking(trackers)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse, before anything is trained, what is unknown or not installed."""
    for name in names:
        TRACKERS.find(name)
        if name in EXTRAS and find_spec(name) is None:
            raise ConfigError(
                f"--track {name} needs the package {name}, which is not installed. Install it "
                f"with: pip install 'fedsage[{EXTRAS[name]}]'"
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
        "calibration_error": record.calibration_error,
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
