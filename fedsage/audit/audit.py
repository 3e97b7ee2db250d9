"""All attacks on one run, one after the other, and their findings as a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsage.audit.case import Case
from fedsage.audit.finding import ATTACKS, Finding
from fedsage.errors import DataError
from fedsage.files import write_json
from fedsage.machine import dense_threads
from fedsage.protocol.procedures import in_private

AUDIT = "audit.json"  # in the run's folder


@dataclass(frozen=True, slots=True)
class Audit:
    """What was audited, and the findings."""

    privacy: str
    method: str
    dataset: str
    owners: int
    partition: str
    seed: int
    traffic: str
    quick: bool
    left_out: int  # nodes left out of the run
    attacks: list[Finding]


def audit(case: Case, on_attack: Callable[[str], None] = lambda name: None) -> Audit:
    """Try every known attack; calls ``on_attack`` with the name of the next one."""
    config, findings = case.setup.config, []
    with dense_threads(config.run.threads):
        for name, entry in ATTACKS.ours().items():
            on_attack(name)
            findings.append(entry.thing(case))
    return Audit(
        "private" if in_private(config) else "sums" if case.masked else "open",
        config.run.method,
        config.data.dataset,
        config.data.owners,
        config.data.partition,
        config.run.seed,
        config.traffic.how,
        case.quick,
        0 if case.left_out is None else case.left_out.shape[0],
        findings,
    )


def write_audit(folder: Path, found: Audit) -> None:
    """Store the findings beside the run."""
    write_json(folder / AUDIT, asdict(found))


def read_audit(folder: Path) -> dict[str, Any] | None:
    """The findings of an audit of the run in ``folder``, or None."""
    try:
        found: dict[str, Any] = json.loads((folder / AUDIT).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / AUDIT} cannot be read ({error}). Audit it again.") from None
    return found
