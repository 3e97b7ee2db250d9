"""``fedsage run`` and ``fedsage compare``, and how to go on after Ctrl-C."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli import comparison, options, output
from fedsage.cli.progress import Shown, ensure_here, rounds
from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.presets import Settings
from fedsage.readable import counted, owners_of

if TYPE_CHECKING:
    from fedsage.runs.record import RunRecord

Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="also send curves, results and files to tensorboard, mlflow or wandb; repeatable",
    ),
]


def run(
    method: options.Method = None,
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    engine: options.Engine = None,
    aggregate: options.Aggregate = None,
    privacy: options.Privacy = None,
    start_from: options.StartFrom = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    out: options.Out = None,
    track: Track = None,
    force: options.Force = False,
    resume: options.Resume = False,
    record: options.Record = False,
    json: options.Json = False,
) -> None:
    """Train and test one method on one graph, and keep the result."""
    settings = options.config_from(
        stored=stored_settings(out) if resume else None,
        config=config, assignments=assignments, preset=preset, method=method,
        dataset=dataset, owners=owners, partition=partition, seed=seed, engine=engine,
        aggregate=aggregate, privacy=privacy, epsilon=epsilon, delta=delta,
        start_from=start_from,
    )  # fmt: skip
    settings, trackers = settled_for(settings), trackers_named(track)
    folder = out or unused_folder(run_name(settings))
    if settings.run.engine == "nvflare":
        from fedsage.cli.federation.run import rehearse_into

        if resume or trackers or record:
            raise ConfigError(
                "--engine nvflare cannot be combined with --resume, --track or --record."
            )
        found = rehearse_into(settings, folder, None, force)
    else:
        with says_how_to_resume(sys.argv[1:], folder):
            found = run_with_progress(settings, folder, force, trackers, resume, record)
    if json:
        output.print_json(asdict(found))
    else:
        output.print_run(found)


def compare(
    methods: Annotated[
        str, typer.Option(metavar="A,B,…", help=f"some of: {options.METHOD_HELP}")
    ] = "locsage,fedsage,fedsage+,globsage",
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="how many seeds, counted from --seed")
    ] = 3,
    dataset: options.Dataset = None,
    owners: options.Owners = None,
    partition: options.PartitionBy = None,
    seed: options.Seed = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    engine: Annotated[str | None, typer.Option(hidden=True)] = None,
    aggregate: options.Aggregate = None,
    privacy: options.Privacy = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    out: options.Out = None,
    track: Track = None,
    force: options.Force = False,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Train several methods on the same graph, owners and seeds, and compare them."""
    settings = options.config_from(
        config=config, assignments=assignments, preset=preset,
        dataset=dataset, owners=owners, partition=partition, seed=seed, engine=engine,
        aggregate=aggregate, privacy=privacy, epsilon=epsilon, delta=delta,
    )  # fmt: skip
    settings = settled_for(settings)
    if settings.run.engine != "inprocess":
        raise ConfigError("compare always runs in one process. Leave out --engine.")
    named = [name.strip() for name in methods.split(",")]
    names = [name for name in dict.fromkeys(named) if name]
    from fedsage.methods import find_method
    from fedsage.runs.checks import check_whole_is_there
    from fedsage.runs.comparison import compare as compare_methods
    from fedsage.runs.comparison import comparison_json, write_rows
    from fedsage.runs.folder import check_free

    if not names:
        raise ConfigError("--methods names no method. Example: --methods locsage,fedsage")
    in_parts = settings.data.partition == "folders"
    for method in map(find_method, names):
        check_whole_is_there(method, method.way(settings.mends_by), not in_parts)
    trackers = trackers_named(track)
    first = settings.run.seed
    folder = out or unused_folder(run_name(settings, "compare"))
    check_free(folder, force or resume)

    done: list[RunRecord] = []

    def run_one(chosen: Config) -> RunRecord:
        name = short_name(chosen.run.method)
        place = folder / f"{name}-seed{chosen.run.seed}"
        done.append(run_with_progress(chosen, place, force, trackers, resume))
        return done[-1]

    with says_how_to_resume(sys.argv[1:], folder):
        rows = compare_methods(settings, names, range(first, first + seeds), run_one)
    write_rows(folder, rows)
    sent = comparison.traffic_per_run(done)
    if json:
        found = comparison.against_baseline(rows, sent)
        output.print_json(comparison_json(rows) | comparison.as_json(found, sent))
        return
    data = settings.data
    where = f"{data.dataset}, {owners_of(data.owners, data.partition)}"
    title = f"{where}, {counted(seeds, 'seed')}, preset {settings.run.preset}"
    comparison.print_comparison(title, rows, sent)
    print(f"Written to {folder}")


def settled_for(settings: Config) -> Config:
    """The same settings; where owners have folders, with as many owners as folders."""
    from fedsage.runs.execute import with_folders

    return with_folders(settings)


def stored_settings(out: Path | None) -> Settings | None:
    """The settings of the run to resume; nothing if it never began."""
    from fedsage.runs.folder import CHECKPOINT, RESULT, read_settings

    if out is None:
        raise ConfigError("--resume needs --out, the folder of the run to continue.")
    if not (out / CHECKPOINT).is_dir() and not (out / RESULT).exists():
        raise ConfigError(
            f"--resume: {out} holds no run that was stopped (there is no {CHECKPOINT} in it). "
            "Check the folder, or leave out --resume to start a new run."
        )
    return read_settings(out)


def trackers_named(words: list[str] | None) -> list[str]:
    """The names given with ``--track``, separated by commas or not; refuses unknown ones."""
    from fedsage.runs.track import check_trackers

    names = [name.strip() for word in words or [] for name in word.split(",")]
    found = [name for name in dict.fromkeys(names) if name]
    check_trackers(found)
    return found


def run_with_progress(
    settings: Config,
    folder: Path,
    force: bool,
    trackers: Sequence[str] = (),
    resume: bool = False,
    record: bool = False,
) -> RunRecord:
    """One run with progress on stderr and its files in ``folder``."""
    from fedsage.cli.report import write_page
    from fedsage.methods import find_method
    from fedsage.runs.folder import RESULT
    from fedsage.runs.run import run_into

    find_method(settings.run.method)
    if resume and (folder / RESULT).exists():
        print(f"{folder} is already finished: nothing left to do.", file=sys.stderr)
    else:
        ensure_here(settings.data.dataset)
    label = f"{short_name(settings.run.method)}, seed {settings.run.seed}"
    command = shlex.join(["fedsage", *sys.argv[1:]])
    with rounds(label, num_rounds(settings)) as progress:
        observe = Shown(progress, settings.data.owners)
        result = run_into(
            settings, folder, observe, force, resume, trackers, command, record,
            lambda place: write_page([place], place / "report.html"),
        )  # fmt: skip
    return result.record


def num_rounds(settings: Config) -> int:
    """Rounds of both phases, for all local models."""
    from fedsage.methods import find_method
    from fedsage.runs import setup

    return setup.num_rounds(settings, find_method(settings.run.method))


def run_name(settings: Config, verb: str | None = None, federation: bool = False) -> str:
    """A folder's name that says what was run."""
    data = settings.data
    dataset = re.sub(r"[^A-Za-z0-9]+", "-", Path(data.dataset).stem)
    how = re.sub(r"[^A-Za-z0-9.]+", "", data.partition)
    what = "federation-" * federation + (verb or short_name(settings.run.method))
    return f"{what}-{dataset}-{data.owners}-{how}-seed{settings.run.seed}"


def short_name(method: str) -> str:
    """A method's name, or that of the file it is in."""
    prefix = "fedsage+" * method.startswith("fedsage+")
    return f"{prefix}{Path(method).stem}" if method.endswith(".py") else method


def unused_folder(name: str) -> Path:
    """A folder under ``runs/`` that is not there yet."""
    folder, count = Path("runs") / name, 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder


class Interrupted(Exception):
    """Somebody pressed Ctrl-C; the message says how to continue."""


@contextlib.contextmanager
def says_how_to_resume(words: Sequence[str], folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message with the command that resumes the runs in ``folder``."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(how_to_resume(words, folder)) from None


def how_to_resume(words: Sequence[str], folder: Path) -> str:
    """What to type after Ctrl-C, given the ``words`` of the command."""
    if "--record" in words:
        return "Interrupted. A recorded run cannot be resumed: start it again with --force."
    if not folder.exists() or not any(folder.iterdir()):
        return "Interrupted before anything was saved. Start it again."
    return f"Interrupted. To resume: {resume_command(words, folder)}"


def resume_command(words: Sequence[str], folder: Path) -> str:
    """The same command with --out and --resume, so that it continues where it stopped."""
    kept = [word for word in words if word not in ("--resume", "--force")]
    if not any(word == "--out" or word.startswith("--out=") for word in kept):
        kept += ["--out", str(folder)]
    return shlex.join(["fedsage", *kept, "--resume"])
