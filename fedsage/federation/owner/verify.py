"""Whether the logs of an owner's runs are as the gate wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsage.errors import ConfigError, nearest
from fedsage.federation.kits.kit import Kit
from fedsage.federation.processes.gate import RUNS
from fedsage.protocol.sent_log import HEAD, SENT, read_chain

LATER = ("checkpoint", "predictions.csv")  # what a run has only after messages were sent


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in the log of one run."""

    run: str
    lines: int  # up to where the chain is intact
    bytes: int  # sent, according to these lines
    wrong: str | None  # the first problem, or None
    note: str | None  # harmless leftovers of a killed process


def verified(kit: Kit, run: str | None = None) -> list[Verified]:
    """All runs of an owner's kit, or one."""
    if kit.role != "owner":
        raise ConfigError(
            f"{kit.path} is the kit of the {kit.role}, but only owners have {SENT}. Give the "
            "kit of an owner."
        )
    folders = sorted(path for path in (kit.ours / RUNS).glob("*") if path.is_dir())
    names = [folder.name for folder in folders]
    if run is not None and run not in names:
        raise ConfigError(f"There is no run '{run}' in {kit.ours / RUNS}.{nearest(run, names)}")
    found = [verified_run(folder) for folder in folders if run in (None, folder.name)]
    return [one for one in found if one is not None]


def verified_run(folder: Path) -> Verified | None:
    """One run; None if it ended before anything could be sent."""
    if not (folder / SENT).exists() and not (folder / HEAD).exists():
        if not any((folder / name).exists() for name in LATER):
            return None
        return Verified(folder.name, 0, 0, f"there is no {SENT}, but messages were sent", None)
    chain = read_chain(folder)
    return Verified(folder.name, chain.head.lines, chain.num_bytes, chain.wrong, chain.note)
