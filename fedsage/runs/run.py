"""``fedsage.run``, and the same run in a folder that it can be resumed from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch.nn import Module

from fedsage.config import Config, Privacy, RunConfig, load_config
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.methods import Method
from fedsage.models.backbone import is_ours, named
from fedsage.presets import Settings
from fedsage.protocol.server import Rule, named_rule
from fedsage.runs.events import Event, Observer, Stopwatch, ignore_event
from fedsage.runs.execute import Given, execute, run_config
from fedsage.runs.folder import (
    CHECKPOINT,
    RESULT,
    Provenance,
    append_history,
    check_free,
    check_same_settings,
    claim,
    end_checkpoint,
    write_settings,
)
from fedsage.runs.notebook import shown
from fedsage.runs.record import OWN
from fedsage.runs.result import RunResult, load_result, write
from fedsage.runs.setup import chosen_by_name, num_rounds
from fedsage.runs.track import Tracking, check_trackers, track

RUN = RunConfig()


def run(
    owners: Partition,
    method: str | Method = RUN.method,
    preset: str = RUN.preset,
    seed: int = RUN.seed,
    evaluate_on: Graph | None = None,
    dataset: str = OWN,
    settings: Settings | None = None,
    model: str | type[Module] | None = None,
    aggregate: str | Rule | None = None,
    privacy: Privacy | None = None,
    secrets: Sequence[str] = (),
    start_from: Path | str | None = None,
    callbacks: Sequence[Observer] = (),
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    record: bool = False,
    track: Sequence[str] = (),
    progress: bool | None = None,
) -> RunResult:
    """Train ``method`` on the owners' subgraphs and evaluate it.

    Args:
        owners: From :func:`fedsage.partition`.
        method: ``fedsage+``, ``fedsage``, ``locsage+``, ``locsage``, ``globsage``, ``oracle``,
            or ``fedsage+WAY`` to fix how it mends (``fedsage methods`` lists them all). Or a
            :class:`fedsage.Method` of your own, or the path of the file that registers it.
        preset: ``best`` or ``paper``.
        seed: Decides all random choices: the first weights, the batches, and the split of each
            owner's nodes unless the graph has one of its own.
        evaluate_on: The whole graph, for ``accuracy["global"]`` and for GlobSage.
        dataset: What to call the graph in the record.
        settings: Over the preset, nested as in a TOML file: ``{"classifier": {"eta": 0.01}}``.
        model: The classifier: ``graphsage``, ``mix``, ``gcn``, ``gat``, ``propagate``; a
            ``torch.nn.Module`` of your own with ``__init__(self, num_features, num_classes)``
            and ``forward(x, edge_index)``; or the file that registers it.
        aggregate: How the owners' classifiers become one: the name of a rule, a file, or a
            function ``rule(updates, weights)``.
        privacy: ``open``; ``sums``: the server sees only sums over owners; ``private``: only
            sums with noise. ε and δ are settings: ``{"privacy": {"epsilon": 1.0}}``.
        secrets: One word per owner that changes its random choices, as in federations.
        start_from: The folder of an earlier run, whose classifier and generators this one
            begins with; new features and classes get fresh weights.
        callbacks: Called after each round with an event: ``event.round``, ``event.phase``,
            ``event.loss``, ``event.validation``, ``event.model``, ``event.stop()``.
        out: A folder for the result, with the same files that the command line writes.
        resume: Continue the run in ``out`` that was stopped.
        force: Replace what ``out`` holds.
        record: Keep every message in ``out``, for ``fedsage audit``.
        track: Trackers that get rounds and results: ``tensorboard``, or another one that
            ``fedsage methods`` lists. They need ``out``.
        progress: Whether to show each round. By default rounds are shown in notebooks and at
            a prompt, and not in scripts.
    """
    own = method if isinstance(method, Method) else None
    rule = aggregate if callable(aggregate) else None
    chosen_rule = named_rule(aggregate) if callable(aggregate) else aggregate
    by_name = {"aggregate": chosen_rule} if chosen_rule else {}
    more = {"classifier": by_name, "model": {"backbone": named(model)} if model else {}}
    more["privacy"] = {"level": privacy} if privacy else {}
    begins = {"start_from": str(start_from)} if start_from else {}
    chosen = {"run": {"method": own.name if own else method, "seed": seed, **begins}}
    data = {"dataset": dataset, "owners": owners.num_owners, "partition": owners.how}
    config = load_config(settings or {}, {"data": data}, chosen, more, preset=preset)
    folder = Path(out) if out is not None else None
    chosen_method, *_ = chosen_by_name(config, own)

    def go(observe: Observer) -> RunResult:
        checkpoint = folder / CHECKPOINT if folder else None
        watch = Stopwatch(observe)
        given = Given(own, rule, secrets)
        return execute(
            config, owners, evaluate_on, watch, observe, folder, checkpoint, given,
            folder if record else None,
        )  # fmt: skip

    def observe(event: Event) -> None:
        see(event)
        for callback in callbacks if event.what == "round" else ():
            callback(event)

    if folder is None and (resume or force or record or track):
        raise ConfigError(
            "resume, force, record and track need a folder for the run. Add out='runs/mine'."
        )
    check_whole_recording(record, resume)
    label, total = f"{chosen_method.name}, seed {seed}", num_rounds(config, chosen_method)
    with shown(progress, label, total, owners.num_owners) as see:
        if folder is None:
            return go(observe)
        return into_folder(
            go, config, folder, observe, force, resume, track, command="fedsage.run(…)"
        )


def run_into(
    config: Config,
    folder: Path,
    observe: Observer = ignore_event,
    force: bool = False,
    resume: bool = False,
    trackers: Sequence[str] = (),
    command: str = "",
    record: bool = False,
    page: Callable[[Path], object] | None = None,
) -> RunResult:
    """Run what ``config`` names in ``folder``; with ``record``, its messages are kept too.

    ``page`` writes a report into the folder, for trackers that keep files.
    """
    check_whole_recording(record, resume)

    def go(observe: Observer) -> RunResult:
        kept = folder if record else None
        return run_config(config, observe, folder, folder / CHECKPOINT, kept)

    return into_folder(go, config, folder, observe, force, resume, trackers, command, page)


def check_whole_recording(record: bool, resume: bool) -> None:
    """Refuse to record half of a run."""
    if record and resume:
        raise ConfigError(
            "A resumed run cannot be recorded: its earlier messages are missing. Leave out "
            "--record, or start a new run."
        )


def into_folder(
    go: Callable[[Observer], RunResult],
    config: Config,
    folder: Path,
    observe: Observer,
    force: bool,
    resume: bool,
    trackers: Sequence[str] = (),
    command: str = "",
    page: Callable[[Path], object] | None = None,
) -> RunResult:
    """A run whose files are in ``folder``; the result comes last.

    To resume is to go on after the last round in its checkpoint. A run that is finished is
    left as it is.
    """
    check_trackers(trackers)
    settings = config.model_dump(mode="json")
    if resume and ((folder / RESULT).exists() or (folder / CHECKPOINT).exists()):
        check_same_settings(folder, settings)
    if resume and (folder / RESULT).exists():
        end_checkpoint(folder)
        backbone = config.model.backbone
        return load_result(folder, None if is_ours(backbone) else backbone)
    check_free(folder, force or resume)
    with recorded(folder, config, observe, resume, trackers) as (recorder, tracking):
        result = go(recorder)
        tracking().result(result.record)
        write(result, folder, Provenance(settings, command))
        end_checkpoint(folder)
        if page and trackers:
            page(folder)
        tracking().files(folder)
    return result


@contextmanager
def recorded(
    folder: Path, config: Config, observe: Observer, resume: bool, trackers: Sequence[str]
) -> Iterator[tuple[Observer, Callable[[], Tracking]]]:
    """An observer that keeps what happens in ``folder``, and hands it on."""
    settings, tracking = config.model_dump(mode="json"), Tracking([])
    with ExitStack() as stack:

        def recorder(event: Event) -> None:
            nonlocal tracking
            if event.what == "ready":
                claim(folder, resume)
                write_settings(folder, settings)
                tracking = stack.enter_context(track(trackers, folder, settings))
            if event.line is not None:
                append_history(folder, event.line)
                tracking.round(event.line)
            observe(event)

        yield recorder, lambda: tracking
