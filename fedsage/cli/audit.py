"""``fedsage audit``: attack a run, and show how far each attack got."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli import options, output
from fedsage.cli.progress import Shown, ensure_here, rounds
from fedsage.cli.run import num_rounds, run_name, unused_folder
from fedsage.errors import ConfigError
from fedsage.readable import counted

if TYPE_CHECKING:
    from fedsage.audit.audit import Audit
    from fedsage.audit.finding import Finding
    from fedsage.config import Config


def audit(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN_DIR", help="a run made with 'run --record' (default: make a new one)"
        ),
    ] = None,
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    method: options.Method = None,
    privacy: options.Privacy = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="attack one owner, with few shadow runs")
    ] = False,
    out: options.Out = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Attack a run as the server, an owner or an outsider could, and say how far each gets."""
    flags = {"dataset": dataset, "owners": owners, "partition": partition, "method": method,
             "privacy": privacy, "seed": seed, "preset": preset, "config": config,
             "assignments": assignments}  # fmt: skip
    if run is not None and (options.given(**flags) or out or force):
        raise ConfigError(
            "A recorded run already has its settings. Give only its folder, --quick and --json."
        )
    if run is None:
        settings = options.config_from(**flags)  # type: ignore[arg-type]
        run = out or unused_folder(run_name(settings, "audit"))
        new_run(settings, run, force)
    from fedsage.audit.audit import audit as attack_all
    from fedsage.audit.audit import write_audit
    from fedsage.audit.prepare import recorded_case

    def on_attack(name: str) -> None:
        print(f"{name} …", file=sys.stderr, flush=True)

    found = attack_all(recorded_case(run, quick), on_attack)
    write_audit(run, found)
    if json:
        output.print_json(asdict(found) | {"out": str(run)})
    else:
        print_audit(found)
        print(f"Written to {run}")


def new_run(settings: Config, folder: Path, force: bool) -> None:
    """A recorded run, made to be attacked."""
    from fedsage.audit.prepare import run_for_audit

    ensure_here(settings.data.dataset)
    with rounds(f"audit, seed {settings.run.seed}", num_rounds(settings)) as progress:
        observe = Shown(progress, settings.data.owners)
        command = shlex.join(["fedsage", *sys.argv[1:]])
        run_for_audit(settings, folder, observe, force, command)


def print_audit(found: Audit) -> None:
    """A table, and notes on each figure below it."""
    rows = [
        (one.name, one.attacker, one.figure, number(one.value), number(one.chance),
         number(one.sum), one.verdict)
        for one in found.attacks
    ]  # fmt: skip
    columns = ("attack", "attacker", "figure", "value", "chance", "on the sum", "verdict")
    title = (
        f"{found.method} on {found.dataset}, {counted(found.owners, 'owner')}, seed "
        f"{found.seed}, privacy {found.privacy}, traffic {found.traffic}"
        f"{', quick' if found.quick else ''}"
    )
    output.print_table(title, columns, rows)
    output.print_words("Notes", {one.name: note(one) for one in found.attacks})


def number(value: float | None) -> str:
    """A figure."""
    return "–" if value is None else f"{value:.4g}"


def note(one: Finding) -> str:
    """What an attacker sees, and what else was found."""
    return f"{one.sees}. {one.note}".strip()
