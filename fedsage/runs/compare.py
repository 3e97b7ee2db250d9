"""``fedsage.compare``: every method on every seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch.nn import Module

from fedsage.config import Config, DataConfig, Privacy, RunConfig
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.methods import Method, find_method
from fedsage.presets import Settings
from fedsage.protocol.server import Rule
from fedsage.runs.checks import check_whole_is_there
from fedsage.runs.comparison import Comparison, write_rows
from fedsage.runs.folder import check_free
from fedsage.runs.record import OWN, RunRecord
from fedsage.runs.run import run

RUN, DATA = RunConfig(), DataConfig()


def compare(
    owners: Partition | Graph,
    methods: Sequence[str | Method] = ("fedsage", "fedsage+"),
    seeds: int | Sequence[int] = 5,
    evaluate_on: Graph | None = None,
    *,
    num_owners: int | None = None,
    how: str = DATA.partition,
    preset: str = RUN.preset,
    dataset: str = OWN,
    settings: Settings | None = None,
    model: str | type[Module] | None = None,
    aggregate: str | Rule | None = None,
    privacy: Privacy | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    track: Sequence[str] = (),
    progress: bool | None = None,
) -> Comparison:
    """Run every method on every seed, and compare them seed by seed.

    What a seed decides depends on what is given:

    - A partition: its owners stay the same for all seeds. A seed decides which nodes are for
      training, validation and testing (unless the graph came with a split of its own), the
      first weights, and all draws of training.
    - A graph and ``num_owners``: a seed also decides who owns which node. This is what
      ``fedsage compare`` does. ``evaluate_on`` is then the graph itself.

    Args:
        owners: From :func:`fedsage.partition`; or a graph, to be cut anew for each seed.
        methods: Their names, or methods of your own.
        seeds: How many, from 0 on; or which.
        evaluate_on: The whole graph, for the global accuracy.
        num_owners: The number of owners, if a graph is given.
        how: How a graph is cut, as in :func:`fedsage.partition`.
        preset: As in :func:`fedsage.run`; so are all that follow.
        dataset: What to call the graph.
        settings: Over the preset.
        model: The classifier.
        aggregate: How the owners' classifiers become one.
        privacy: ``open`` or ``sums``.
        out: A folder for all runs, each in a folder of its own.
        resume: Continue the comparison in ``out``; finished runs are not repeated.
        force: Replace what ``out`` holds.
        track: Trackers; they need ``out``.
        progress: Whether to show each round.
    """
    chosen = checked_methods(methods)
    whole = owners if isinstance(owners, Graph) else evaluate_on
    for one in methods:
        asked = one if isinstance(one, Method) else find_method(one)
        check_whole_is_there(asked, asked.way(Config().mends_by), whole is not None)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"seeds is {seeds}. Give a number above 0, or different seeds.")
    folder = Path(out) if out is not None else None
    if folder:
        check_free(folder, force or resume)
    records: dict[str, list[RunRecord]] = {name: [] for name in chosen}
    for seed in numbers:
        cut = owners_for(owners, num_owners, how, seed)
        for name, method in chosen.items():
            place = folder / f"{name}-seed{seed}" if folder else None
            result = run(
                cut, method, preset, seed, whole, dataset, settings, model, aggregate, privacy,
                out=place, resume=resume, force=force, track=track, progress=progress,
            )  # fmt: skip
            records[name].append(result.record)
    comparison = Comparison(records)
    if folder:
        write_rows(folder, comparison.rows)
    return comparison


def checked_methods(methods: Sequence[str | Method]) -> dict[str, str | Method]:
    """The methods by name; refuses unknown ones, and the same one twice."""
    if isinstance(methods, str):
        raise ConfigError(f"methods is the word '{methods}'. Give a list: ['{methods}'].")
    names = [one.name if isinstance(one, Method) else find_method(one).name for one in methods]
    if not names:
        raise ConfigError("methods is empty. Name at least one, e.g. methods=['fedsage'].")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Method '{twice[0]}' is given twice. Give each of them once.")
    return dict(zip(names, methods, strict=True))


def owners_for(
    owners: Partition | Graph, num_owners: int | None, how: str, seed: int
) -> Partition:
    """The owners of a seed: those that are given, or a graph cut by that seed."""
    if isinstance(owners, Graph):
        if num_owners is None:
            raise ConfigError(
                "compare was given a graph, but not for how many owners to cut it. Add "
                "num_owners=3, or give what fedsage.partition returns."
            )
        return partition(owners, num_owners, how, seed)
    if num_owners is not None:
        raise ConfigError(
            "compare was given a partition and num_owners. Give the graph and num_owners to "
            "cut it anew for each seed, or the partition alone."
        )
    return owners
