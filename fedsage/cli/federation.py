"""``fedsage federation``: owners on separate machines."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fedsage.cli import options, show
from fedsage.cli.progress import ensure_here, say
from fedsage.cli.run import num_rounds, run_name, settled_for, short_name, unused_folder
from fedsage.config import Config
from fedsage.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from fedsage.federation.kits import Kit
    from fedsage.runs.record import RunRecord

app = typer.Typer(help="Owners on separate machines, with mutual TLS.", no_args_is_help=True)
KitFolder: TypeAlias = Annotated[Path, typer.Argument(help="a party's startup kit")]
Deadline: TypeAlias = Annotated[
    float | None, typer.Option(help="seconds that an owner has to answer (default: 600)")
]
MinOwners: TypeAlias = Annotated[
    int | None, typer.Option(help="stop if fewer owners answer (default: all owners)")
]


def needs_nvflare() -> None:
    """Say how to install what only federations need."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise ConfigError(
            "Federations need NVFlare, which is not installed. Install it with: "
            "pip install 'fedsage[federation]'"
        ) from None


@app.command()
def init(
    server: Annotated[str, typer.Option(help="HOST:PORT by which owners reach the server")],
    owners: Annotated[str, typer.Option(help="names, e.g. east,north,west")],
    out: Annotated[Path, typer.Option(help="folder to write the kits to")],
) -> None:
    """Write a startup kit for the server, for every owner and for the coordinator."""
    needs_nvflare()
    from fedsage.federation.kits import make_kits

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
        Path | None, typer.Option(help="an owner's data; the kit remembers it")
    ] = None,
) -> None:
    """Start a party; an owner's data is checked first."""
    needs_nvflare()
    from fedsage.federation.kits import open_kit
    from fedsage.federation.operate import start as start_party

    start_party(open_kit(kit), data, say)


@app.command()
def stop(kit: KitFolder) -> None:
    """Stop a party; what it has saved stays on its disk."""
    needs_nvflare()
    from fedsage.federation.kits import open_kit
    from fedsage.federation.operate import stop as stop_party

    opened = open_kit(kit)
    was = stop_party(opened)
    print(f"{opened.name} {'stopped' if was else 'was not running'}")


@app.command()
def allow(
    kit: KitFolder,
    file: Annotated[Path, typer.Argument(help="a Python file that runs may use here")],
) -> None:
    """Let runs use a file of your own at this party: a way of mending, a backbone, a rule."""
    from fedsage.federation.allowed import allow as allow_file
    from fedsage.federation.kits import open_kit
    from fedsage.registry import checksum

    opened = open_kit(kit)
    copy = allow_file(file, opened.ours)
    print(f"{opened.name} allows {file.name}, SHA-256 {checksum(str(copy))}")


@app.command()
def status(kit: KitFolder) -> None:
    """Show whether a party is running; with the coordinator's kit, who is connected."""
    needs_nvflare()
    from fedsage.federation.job import who_is_there
    from fedsage.federation.kits import federation_of, open_kit
    from fedsage.federation.operate import lost_its_gate, pid_of, running

    opened = open_kit(kit)
    if opened.role != "coordinator":
        up = f"running, process {pid_of(opened)}" if running(opened) else "not running"
        gone = ", but its gate is gone: stop it and start it again" * lost_its_gate(opened)
        print(f"{opened.name}: {up}{gone}")
        return
    about = federation_of(opened)
    there = who_is_there(opened)
    print(f"server {about['server']}: running")
    for name in about["owners"]:
        print(f"{name}: {'connected' if name in there else 'not connected'}")


@app.command()
def verify(
    kit: KitFolder,
    run: Annotated[str | None, typer.Argument(help="one run of the kit (default: all)")] = None,
    json: options.Json = False,
) -> None:
    """Check that what an owner's logs say has left is as it was written; exit code 1 if not."""
    from fedsage.federation.kits import open_kit
    from fedsage.federation.verify import verified

    found = verified(open_kit(kit), run)
    if json:
        show.print_json([asdict(one) for one in found])
    elif not found:
        print("Nothing has left by this kit.")
    for one in found if not json else []:
        state = (
            f"BROKEN: {one.wrong}" if one.wrong else f"whole{f' ({one.note})' * bool(one.note)}"
        )
        print(f"{one.run}: {one.lines:,} lines, {one.bytes:,} bytes left, {state}")
    if any(one.wrong for one in found):
        raise typer.Exit(1)


@app.command()
def run(
    kit: Annotated[Path, typer.Option(help="the coordinator's startup kit")],
    method: options.Method = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    aggregate: options.Aggregate = None,
    privacy: options.Privacy = None,
    deadline: Deadline = None,
    min_owners: MinOwners = None,
    out: options.Out = None,
    force: options.Force = False,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Train between the owners of a federation, and fetch the model."""
    needs_nvflare()
    from fedsage.federation.hiding import with_level
    from fedsage.federation.kits import federation_of, open_kit
    from fedsage.federation.rundir import stored

    opened = open_kit(kit)
    owners = len(federation_of(opened)["owners"])
    settings = options.config_from(
        stored=stored(out) if resume else None, config=config, assignments=assignments,
        preset=preset, method=method, seed=seed, engine="nvflare", aggregate=aggregate,
        privacy=privacy, dataset="own", owners=owners, partition="folders", deadline=deadline,
        min_owners=min_owners,
    )  # fmt: skip
    settings = with_level(settings, say)
    folder = out or unused_folder(run_name(settings, federation=True))
    record = run_between(opened, settings, folder, force, resume)
    show_record(record, json)


@app.command()
def abort(
    kit: Annotated[Path, typer.Option(help="the coordinator's startup kit")],
    out: Annotated[Path, typer.Option(help="the folder of the run")],
) -> None:
    """Stop a run; it can be resumed."""
    needs_nvflare()
    from fedsage.federation.job import abort as abort_job
    from fedsage.federation.kits import open_kit
    from fedsage.federation.rundir import job_of

    abort_job(open_kit(kit), job_of(out))
    print(f"The run in {out} is stopped. --resume goes on with it.")


@app.command("try")
def try_(
    method: options.Method = None,
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    aggregate: options.Aggregate = None,
    privacy: options.Privacy = None,
    deadline: Deadline = None,
    min_owners: MinOwners = None,
    out: options.Out = None,
    keep: Annotated[
        Path | None, typer.Option(help="keep kits and owners' folders here")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Try a whole federation on this machine, with real processes and certificates."""
    settings = options.config_from(
        config=config, assignments=assignments, preset=preset, method=method, seed=seed,
        dataset=dataset, owners=owners, partition=partition, engine="nvflare",
        aggregate=aggregate, privacy=privacy, deadline=deadline, min_owners=min_owners,
    )  # fmt: skip
    settings = settled_for(settings)
    folder = out or unused_folder(run_name(settings, federation=True))
    show_record(rehearse_into(settings, folder, keep, force), json)


def rehearse_into(settings: Config, folder: Path, keep: Path | None, force: bool) -> RunRecord:
    """A whole federation on this machine, and its result in ``folder``."""
    needs_nvflare()
    from fedsage.federation.hiding import with_level
    from fedsage.federation.job import RESUME
    from fedsage.federation.rehearse import rehearsal
    from fedsage.federation.serve import federated_parts
    from fedsage.runs.folder import check_free

    federated_parts(settings)
    settings = with_level(settings, say)
    check_free(folder, force)
    ensure_here(settings.data.dataset)
    with rehearsal(settings, keep, say) as coordinator:
        try:
            record = run_between(coordinator, settings, folder, force, resume=False)
        except ProtocolError as error:  # a rehearsal is gone when it ends
            raise ProtocolError(str(error).removesuffix(RESUME).rstrip()) from None
    if keep:
        say(f"Kits and what each owner has are in {keep}")
    return record


def run_between(
    kit: Kit, settings: Config, folder: Path, force: bool, resume: bool
) -> RunRecord:
    """One federated run with progress on stderr and its result in ``folder``."""
    from fedsage.cli.progress import rounds
    from fedsage.federation.rundir import run_into
    from fedsage.federation.serve import federated_parts
    from fedsage.runs.folder import check_free

    federated_parts(settings)
    check_free(folder, force or resume)
    owners, least = settings.data.owners, settings.federation.min_owners
    if least > owners:
        raise ConfigError(f"--min-owners is {least}, but there are {owners} owners.")
    command = shlex.join(["fedsage", *sys.argv[1:]])
    label = f"{short_name(settings.run.method)}, seed {settings.run.seed}"
    with rounds(label, num_rounds(settings)) as progress:
        return run_into(kit, settings, folder, command, resume, progress, say)


def show_record(record: RunRecord, json: bool) -> None:
    """The result, for people or for programs."""
    if json:
        show.print_json(asdict(record))
    else:
        show.print_run(record)
