"""The result of a run as a user holds it: numbers, rounds as a table, models; save and load."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.nn import Module

from fedsage.errors import FedSageError, optional
from fedsage.models.classifier import NodeClassifier, load_models, save_models
from fedsage.readable import counted, html_table, owners_of
from fedsage.runs.events import HistoryLine
from fedsage.runs.folder import (
    Provenance,
    append_history,
    check_free,
    claim,
    read_history,
    read_record,
    read_result,
    write_result,
)
from fedsage.runs.predictions import save_predictions
from fedsage.runs.record import OWN, RunRecord
from fedsage.runs.stored_graph import (
    OWNERS,
    Answering,
    load_answering,
    places,
    save_answering,
)

SHOWN = 10  # rounds in a notebook


class History(list[HistoryLine]):
    """The rounds of a run in order: a list, and a table."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each round as one flat row: phase, round, loss, validation, traffic, seconds."""
        return [row_of(line) for line in self]

    def to_pandas(self) -> Any:
        """A ``DataFrame`` with a row for each round."""
        return optional("pandas", "to_pandas", "pandas").DataFrame(self.rows)

    def __repr__(self) -> str:
        """How many rounds there are, and how the last one went."""
        last = f", last: {state_of(self[-1])}" if self else ""
        return f"History({counted(len(self), 'round')}{last})"

    def _repr_html_(self) -> str:
        """The last rounds as a table, for notebooks."""
        rows = [
            [line.phase, str(line.round), share(line.loss), share(line.validation)]
            for line in self[-SHOWN:]
        ]
        return html_table(repr(self), ["phase", "round", "loss", "validation"], rows)


def row_of(line: HistoryLine) -> dict[str, Any]:
    """One round without anything nested."""
    terms = {f"loss_{name}": value for name, value in line.terms.items()}
    return {
        "phase": line.phase,
        "round": line.round,
        "owner": line.owner,
        "loss": line.loss,
        **terms,
        "validation": line.validation,
        "bytes_up": line.bytes["up"],
        "bytes_down": line.bytes["down"],
        "seconds": line.seconds,
        "left_out": len(line.without),
    }


def state_of(line: HistoryLine) -> str:
    """The numbers of a round in words."""
    known = {"loss": line.loss, "validation": line.validation}
    words = [f"{name} {value:.3f}" for name, value in known.items() if value is not None]
    return ", ".join(words) or f"round {line.round + 1}"


def share(value: float | None) -> str:
    """A number with four digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4f}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunResult:
    """The result of a run: numbers, rounds, models and settings."""

    record: RunRecord
    history: History
    models: list[NodeClassifier]
    settings: dict[str, Any] = field(default_factory=dict)  # all of them, as in result.json
    answering: list[Answering] = field(default_factory=list)  # owners whose nodes are here

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Accuracy on test nodes: ``global`` on the whole graph, ``local`` at the owners."""
        return self.record.accuracy

    @property
    def model(self) -> NodeClassifier:
        """The shared classifier."""
        if len(self.models) > 1:
            raise FedSageError(
                f"{self.record.method} trained {len(self.models)} local models and no shared "
                "one. Use one of result.models."
            )
        return self.models[0]

    def save(self, folder: Path | str, force: bool = False) -> None:
        """Write the files that ``fedsage run --out`` writes; :func:`load_result` reads them.

        Args:
            folder: Is made if it is not there.
            force: Replace another run that the folder holds.
        """
        folder = Path(folder)
        check_free(folder, force)
        claim(folder)
        for line in self.history:
            append_history(folder, line)
        record = replace(self.record, out=str(folder))
        write(replace(self, record=record), folder, Provenance(self.settings, "result.save(…)"))

    def __repr__(self) -> str:
        """What was run, and how accurate it is."""
        held = self.record
        found = [f"{share(value)} {name}" for name, value in held.accuracy.items() if value]
        who = owners_of(held.owners, held.partition)
        graph = f" on {held.dataset}" * (held.dataset != OWN)
        what = f"{held.method}{graph}, {who}, seed {held.seed}"
        return f"RunResult({what}: accuracy {', '.join(found) or 'not known'})"

    def _repr_html_(self) -> str:
        """The main numbers as a table, for notebooks."""
        held = self.record
        rows = [
            ["accuracy, test nodes on the whole graph", share(held.accuracy["global"])],
            ["accuracy, test nodes at their owners", share(held.accuracy["local"])],
            ["macro F1", share(held.macro_f1)],
            ["balanced accuracy", share(held.balanced_accuracy)],
            ["calibration error", share(held.calibration_error)],
            ["validation accuracy", share(held.validation)],
            ["round that was kept", str(held.round)],
            ["rounds", str(len(self.history))],
            ["seconds", f"{held.seconds['total']:.1f}"],
        ]
        return html_table(repr(self), ["", ""], rows)


def write(result: RunResult, folder: Path, provenance: Provenance) -> None:
    """The models, what owners' answers come from, and the record, in that order."""
    save_models(result.models, folder)
    for i, held in enumerate(result.answering):
        place = folder / OWNERS / held.owner
        save_answering(held, place)
        save_predictions(result.models[i if len(result.models) > 1 else 0], held, place)
    write_result(folder, result.record, provenance)


def save(result: RunResult, folder: Path | str) -> None:
    """The same as ``result.save(folder)``."""
    result.save(folder)


def load_result(folder: Path | str, model: str | type[Module] | None = None) -> RunResult:
    """The result in a run's folder; ``model`` is needed for a backbone of your own."""
    folder = Path(folder)
    record, settings = read_record(folder), read_result(folder)["config"]
    held = [load_answering(place) for place in places(folder).values()]
    return RunResult(
        record, History(read_history(folder)), load_models(folder, model), settings, held
    )
