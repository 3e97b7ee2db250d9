"""``fedsage federation``: owners on separate machines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fedsage.cli import options, output
from fedsage.cli.federation import consent, console, members, old_runs, pause, service
from fedsage.cli.federation.run import (
    needs_nvflare,
    rehearse_into,
    run_between,
    show_record,
    still_going,
)
from fedsage.cli.federation.status import status
from fedsage.cli.options import KitFolder
from fedsage.cli.progress import say
from fedsage.cli.run import Interrupted, run_name, settled_for, unused_folder
from fedsage.readable import counted

app = typer.Typer(
    help="Train between owners on separate machines, over mutual TLS.", no_args_is_help=True
)
app.command()(status)
app.add_typer(consent.app)
app.add_typer(pause.app)
app.add_typer(members.app)
app.add_typer(old_runs.app)
app.add_typer(console.app)
app.add_typer(service.app)
Coordinator: TypeAlias = Annotated[
    Path, typer.Option(metavar="KIT", help="folder of the coordinator's startup kit")
]
Deadline: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="how long to wait for an owner (default: 600)"),
]
Wait: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="how long to wait for owners that are absent (default: a day)"
    ),
]
MinOwners: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", help="wait if fewer owners answer (default: all of them)"),
]


@app.command()
def init(
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where owners reach the server")
    ],
    owners: Annotated[
        str, typer.Option(metavar="A,B,…", help="the owners' names, e.g. east,north,west")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="where to write the kits")],
) -> None:
    """Write a startup kit for the server, for every owner and for the coordinator."""
    needs_nvflare()
    from fedsage.federation.kits.make import make_kits

    names = [name.strip() for name in owners.split(",") if name.strip()]
    for kit in make_kits(server, names, out):
        print(f"{kit.role:<12}{kit.path}")
    print(
        f"authority   {out.resolve() / 'authority'}\nGive each party its own kit over a "
        "channel you trust: it holds a private key. Keep the authority to yourself."
    )


@app.command()
def start(
    kit: KitFolder,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="an owner's data; the kit remembers where it is"),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="stay until the party ends, as a service does")
    ] = False,
) -> None:
    """Start the server or an owner; an owner's data is checked first."""
    needs_nvflare()
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.processes.service import stay
    from fedsage.federation.processes.start import start as start_party

    (stay if foreground else start_party)(open_kit(kit), data, say)


@app.command()
def stop(kit: KitFolder) -> None:
    """Stop the server or an owner; whatever it saved stays on disk."""
    needs_nvflare()
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.processes.start import stop as stop_party

    opened = open_kit(kit)
    was = stop_party(opened)
    print(f"{opened.name} {'stopped' if was else 'was not running'}")


@app.command()
def allow(
    kit: KitFolder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.py", help="a Python file that runs may use here")
    ],
) -> None:
    """Allow runs to use your own Python file here: a way of mending, a backbone or a rule."""
    from fedsage.federation.consent.own_files import allow as allow_file
    from fedsage.federation.kits.kit import open_kit
    from fedsage.registry import checksum

    opened = open_kit(kit)
    copy = allow_file(file, opened.ours)
    print(f"{opened.name} allows {file.name}, SHA-256 {checksum(str(copy))}")


@app.command()
def verify(
    kit: KitFolder,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="check one run (default: all)")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check that nobody changed an owner's log of what it sent; exit code 1 if somebody did."""
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.owner.verify import verified

    found = verified(open_kit(kit), run)
    if json:
        output.print_json([asdict(one) for one in found])
    elif not found:
        print("This kit has sent nothing yet.")
    for one in found if not json else []:
        state = (
            f"BROKEN: {one.wrong}"
            if one.wrong
            else f"intact{f' ({one.note})' * bool(one.note)}"
        )
        print(
            f"{one.run}: {counted(one.lines, 'line')}, {counted(one.bytes, 'byte')} sent, "
            f"{state}"
        )
    if any(one.wrong for one in found):
        raise typer.Exit(1)


@app.command()
def run(
    kit: Coordinator,
    method: options.FederatedMethod = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    aggregate: options.Aggregate = None,
    privacy: options.FederatedPrivacy = None,
    start_from: options.StartFrom = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    deadline: Deadline = None,
    min_owners: MinOwners = None,
    wait: Wait = None,
    out: options.Out = None,
    force: options.Force = False,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Train across the owners of a federation, and fetch the model."""
    needs_nvflare()
    from fedsage.federation.before_training.earlier_run import with_checksum
    from fedsage.federation.coordinator.privacy_level import with_level
    from fedsage.federation.coordinator.run_folder import stored
    from fedsage.federation.kits.kit import federation_of, open_kit

    opened = open_kit(kit)
    owners = len(federation_of(opened)["owners"])
    settings = options.config_from(
        stored=stored(out) if resume else None, config=config, assignments=assignments,
        preset=preset, method=method, seed=seed, engine="nvflare", aggregate=aggregate,
        privacy=privacy, epsilon=epsilon, delta=delta, start_from=start_from, dataset="own",
        owners=owners, partition="folders", deadline=deadline, min_owners=min_owners,
        wait=wait,
    )  # fmt: skip
    settings = with_level(with_checksum(settings), say)
    folder = out or unused_folder(run_name(settings, federation=True))
    try:
        record = run_between(opened, settings, folder, force, resume)
    except KeyboardInterrupt:
        raise Interrupted(still_going(kit, folder)) from None
    show_record(record, json)


@app.command()
def abort(
    kit: Coordinator,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="the folder of the run")],
) -> None:
    """Stop a run; it can be resumed later."""
    needs_nvflare()
    from fedsage.federation.coordinator.job import abort as abort_job
    from fedsage.federation.coordinator.run_folder import job_of
    from fedsage.federation.kits.kit import open_kit

    abort_job(open_kit(kit), job_of(out))
    print(f"The run in {out} has stopped. Continue it with --resume.")


@app.command("try")
def try_(
    method: options.FederatedMethod = None,
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    aggregate: options.Aggregate = None,
    privacy: options.FederatedPrivacy = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    deadline: Deadline = None,
    min_owners: MinOwners = None,
    wait: Wait = None,
    out: options.Out = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="keep the kits and the owners' folders here"),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Try a whole federation on this machine, with real processes and certificates."""
    settings = options.config_from(
        config=config, assignments=assignments, preset=preset, method=method, seed=seed,
        dataset=dataset, owners=owners, partition=partition, engine="nvflare",
        aggregate=aggregate, privacy=privacy, epsilon=epsilon, delta=delta,
        deadline=deadline, min_owners=min_owners,
        wait=wait,
    )  # fmt: skip
    settings = settled_for(settings)
    folder = out or unused_folder(run_name(settings, federation=True))
    show_record(rehearse_into(settings, folder, keep, force), json)
