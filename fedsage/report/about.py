"""How the runs were made: commands, versions, settings, and the earlier run they begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedsage.report.blocks import Block, Code, Section, Sheet, Table, Value, listed
from fedsage.report.read import Run


def repeat(runs: Sequence[Run]) -> Section:
    """The command, the versions and all settings."""
    commands = dict.fromkeys(str(run.result.get("command")) for run in runs)
    blocks: list[Block] = [Code(list(commands)), made_with(runs), settings_in_common(runs)]
    if differing := settings_that_differ(runs):
        blocks.append(differing)
    return Section("Repeat it", "The command, the versions and every setting.", blocks)


def made_with(runs: Sequence[Run]) -> Table:
    """Versions, commit, machine and date: one row for each value that occurs."""
    rows = []
    for key in ("versions", "machine"):
        each = [run.result.get(key) or {} for run in runs]
        for name in dict.fromkeys(name for one in each for name in one):
            seen = dict.fromkeys(str(one.get(name, "unknown")) for one in each)
            rows.append((name, ", ".join(seen)))
    commits = dict.fromkeys(str(run.result.get("commit") or "unknown") for run in runs)
    dates = sorted({run.finished for run in runs})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    rows += [("commit", ", ".join(commits)), ("finished (UTC)", when)]
    return Table("Versions and machine", ("what", "value"), rows, text=True)


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings by ``section.key``, as one writes them after ``--set``."""
    return {
        f"{section}.{key}": value if isinstance(value, str) else json.dumps(value)
        for section, values in config.items()
        for key, value in values.items()
    }


def settings_in_common(runs: Sequence[Run]) -> Table:
    """Settings that are the same in all runs."""
    each = [flat(run.result.get("config") or {}) for run in runs]
    rows = [
        (key, value)
        for key, value in each[0].items()
        if all(one.get(key) == value for one in each[1:])
    ]
    caption = "Settings of all runs" if len(runs) > 1 else "Settings"
    return Table(caption, ("setting", "value"), rows, long=True, text=True)


def settings_that_differ(runs: Sequence[Run]) -> Table | None:
    """Settings that some runs have otherwise: one row for each run."""
    each = [flat(run.result.get("config") or {}) for run in runs]
    keys = dict.fromkeys(key for one in each for key in one)
    differ = [key for key in keys if len({one.get(key) for one in each}) > 1]
    if not differ:
        return None
    rows = [[one.get(key, "–") for key in differ] for one in each]
    return Table("Settings that differ", differ, rows, long=len(rows) > 14, text=True)


def facts(runs: Sequence[Run], made: str) -> list[tuple[str, str]]:
    """What stands at the head of the page: version, machine, date."""
    found = [run.result for run in runs]
    versions = dict.fromkeys(str(one.get("versions", {}).get("fedsage", "?")) for one in found)
    commits = dict.fromkeys(str(one.get("commit") or "")[:10] for one in found)
    known = [commit for commit in commits if commit]
    source = f" (commit {listed(known)})" if known else ""
    machines = dict.fromkeys(machine_in_words(one.get("machine") or {}) for one in found)
    days = sorted({run.finished[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        ("fedsage", f"{listed(list(versions))}{source}"),
        ("machine", "; ".join(machines)),
        ("preset", listed(list(dict.fromkeys(one["preset"] for one in found)))),
        ("date", when if when == made else f"runs {when}, page {made}"),
    ]


def machine_in_words(machine: Mapping[str, Any]) -> str:
    """``Linux, x86_64, 2 CPUs``."""
    cpus = machine.get("cpus")
    count = f"{cpus} CPU{'' if cpus == 1 else 's'}" if cpus else ""
    words = [str(machine.get("system") or ""), str(machine.get("arch") or ""), count]
    return ", ".join(word for word in words if word) or "unknown"


WAYS = {"global": "on the whole graph", "local": "on what owners hold"}


def earlier(runs: Sequence[Run]) -> Section | None:
    """A row for each run and graph that is queried: before, after, and the difference."""
    rows, sheet = [], list[list[Value]]()
    for run in runs:
        found, before = run.result, run.result.get("accuracy_before") or {}
        for way, was in before.items():
            now = found["accuracy"][way]
            if was is None or now is None:
                continue
            name = f"{run.method}, seed {found['seed']}"
            told = str(found["started_from"])
            rows.append(
                (name, told, WAYS[way], f"{was:.4f}", f"{now:.4f}", f"{now - was:+.4f}")
            )
            sheet.append([run.method, found["seed"], told, way, was, now])
    if not rows:
        return None
    columns = ("run", "began with", "test nodes", "earlier", "this run", "difference")
    raw = Sheet(("method", "seed", "started_from", "way", "before", "now"), sheet)
    note = (
        "The classifier that each run began with beside the one that it ended with, on the "
        "same test nodes and the same graphs. Nodes of the earlier run keep their split, "
        "unless the tables have one, so neither was trained on these nodes."
    )
    table = Table("Accuracy of the earlier run and of this one", columns, rows, raw)
    return Section("Since the earlier run", note, [table])
