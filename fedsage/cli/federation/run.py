"""Runs between parties: with progress on stderr, and the result in a folder."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedsage.cli import output
from fedsage.cli.progress import ensure_here, rounds, say
from fedsage.cli.run import num_rounds, short_name
from fedsage.config import Config
from fedsage.errors import ConfigError, ProtocolError
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.federation.kits.kit import Kit
    from fedsage.runs.record import RunRecord


def needs_nvflare() -> None:
    """Say how to install the extra that federations need."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise ConfigError(
            "Federations need NVFlare, which is not installed. Install it with: "
            "pip install 'fedsage[federation]'"
        ) from None


def rehearse_into(settings: Config, folder: Path, keep: Path | None, force: bool) -> RunRecord:
    """A whole federation on this machine, and its result in ``folder``."""
    needs_nvflare()
    from fedsage.federation.coordinator.job import RESUME
    from fedsage.federation.coordinator.privacy_level import with_level
    from fedsage.federation.coordinator.rehearse import rehearsal
    from fedsage.federation.server.serve import federated_parts
    from fedsage.runs.folder import check_free

    federated_parts(settings)
    if settings.run.start_from:
        raise ConfigError(
            "A federation that is only tried has no earlier run to start from. Leave out "
            "--start-from, or use 'fedsage federation run'."
        )
    settings = with_level(settings, say)
    check_free(folder, force)
    ensure_here(settings.data.dataset)
    with rehearsal(settings, keep, say) as coordinator:
        try:
            record = run_between(coordinator, settings, folder, force, resume=False)
        except ProtocolError as error:  # a rehearsal is gone when it ends
            raise ProtocolError(str(error).removesuffix(RESUME).rstrip()) from None
    if keep:
        say(f"The kits and the owners' folders are in {keep}")
    return record


def run_between(
    kit: Kit, settings: Config, folder: Path, force: bool, resume: bool
) -> RunRecord:
    """One federated run with progress on stderr and its result in ``folder``."""
    from fedsage.federation.coordinator.run_folder import federated_run
    from fedsage.federation.server.serve import federated_parts
    from fedsage.runs.folder import check_free

    federated_parts(settings)
    check_free(folder, force or resume)
    owners, least = settings.data.owners, settings.federation.min_owners
    if least > owners:
        there = counted(owners, "owner")
        raise ConfigError(f"--min-owners is {least}, but this federation has {there}.")
    command = shlex.join(["fedsage", *sys.argv[1:]])
    label = f"{short_name(settings.run.method)}, seed {settings.run.seed}"
    with rounds(label, num_rounds(settings)) as progress:
        return federated_run(kit, settings, folder, command, resume, progress, say)


def show_record(record: RunRecord, json: bool) -> None:
    """Print the result as a table, or as JSON."""
    if json:
        output.print_json(asdict(record))
    else:
        output.print_run(record)


def still_going(kit: Path, folder: Path) -> str:
    """What to type after Ctrl-C: the run continues at the server without anybody watching."""
    where = f"--kit {shlex.quote(str(kit))} --out {shlex.quote(str(folder))}"
    return (
        "Interrupted here, but the owners may still be training.\n"
        f"To follow the run again: fedsage federation run {where} --resume\n"
        f"To stop it: fedsage federation abort {where}"
    )
