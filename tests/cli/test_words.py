"""Help, completion, comparisons and interruptions: the words that users read."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fedsage.cli import options
from fedsage.cli.comparison import against_baseline, difference_cells, title_of_differences
from fedsage.cli.federation.run import still_going
from fedsage.cli.main import app
from fedsage.cli.reproduce import names_for_the_shell
from fedsage.cli.run import how_to_resume
from fedsage.data.datasets import DATASETS
from fedsage.federation.server.serve import federated
from fedsage.methods import METHODS, find_method
from fedsage.readable import counted, listed
from fedsage.reproduce.make import STUDIES
from fedsage.runs.comparison import Row
from tests.cli.conftest import SMALL, Call

BASH = shutil.which("bash")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def methods_of_ours() -> set[str]:
    """Those that come with the package, whatever else this process has loaded."""
    found = METHODS.ours().items()
    return {name for name, one in found if one.module.startswith("fedsage.")}


ALL = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "fedsage")
def test_every_help_page_opens_with_h_and_shows_no_types(
    fedsage: Call, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = fedsage(*path, "-h")
    assert done.code == 0 and "Usage: fedsage" in done.out
    assert not re.search(r"<(bool|str|path|int|float|list)|BOOLEAN", done.out)
    assert fedsage(*path, "--help").out == done.out


def test_a_federation_s_help_lists_only_what_separate_owners_can_run(
    fedsage: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ours = methods_of_ours()
    could = {name for name in ours if federated(find_method(name), "none")}
    assert could - {*options.RIVALS} == set(options.FEDERATED)
    for verb in ("run", "try"):
        shown = fedsage("federation", verb, "-h").out
        for other in ours - could:
            assert other not in shown


def test_names_in_the_help_are_names_that_exist() -> None:
    assert {*options.METHODS, *options.RIVALS} == methods_of_ours()
    assert set(options.DATASETS) == {*DATASETS, "synthetic"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(fedsage: Call, shell: str) -> None:
    done = fedsage("completion", shell)
    assert done.code == 0 and f"complete_{shell}" in done.out


def test_completion_for_an_unknown_shell_is_refused(fedsage: Call) -> None:
    done = fedsage("completion", "bush")
    assert done.code == 2 and "Did you mean 'bash'?" in done.err


def test_the_shell_offers_every_study() -> None:
    assert names_for_the_shell("") == ["list", "all", *STUDIES]
    assert names_for_the_shell("table-m") == ["table-main"]


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="there is no bash here")
def test_a_real_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    program = tmp_path / "fedsage"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedsage "$@"\n')
    program.chmod(0o755)
    script = """eval "$(fedsage completion bash)"
    COMP_WORDS=(fedsage run --dataset c); COMP_CWORD=3; _fedsage_completion fedsage
    echo "${COMPREPLY[*]}" """
    place = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(BASH), "--norc", "-c", script], capture_output=True, text=True,
        env=os.environ | place,
    )  # fmt: skip
    assert done.stdout.split() == ["cora", "citeseer"], done.stderr


@pytest.mark.slow
def test_an_interrupted_run_says_a_command_that_resumes_it(
    fedsage: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedsage.runs.events import Event
    from fedsage.runs.run import run_config

    def interrupted(config: Any, observe: Any, *more: Any) -> Any:
        def until_a_round(event: Event) -> None:
            observe(event)
            if event.what == "round":
                raise KeyboardInterrupt

        return run_config(config, until_a_round, *more)

    words = ("run", *SMALL, "--out", "a folder")
    with monkeypatch.context() as patched:
        patched.setattr("fedsage.runs.run.run_config", interrupted)
        done = fedsage(*words)
    assert done.code == 130
    told, command = done.err.strip().splitlines()[-1].split(": ", 1)
    assert told == "Interrupted. To resume"
    again = fedsage(*shlex.split(command)[1:])
    assert again.code == 0 and (Path("a folder") / "result.json").exists(), again.err


def test_an_interrupted_coordinator_is_told_how_to_follow_and_how_to_stop() -> None:
    _, *told = still_going(Path("kits/coordinator"), Path("a folder")).splitlines()
    commands = [shlex.split(line.split(": ", 1)[1]) for line in told]
    where = ["--kit", "kits/coordinator", "--out", "a folder"]
    assert commands == [
        ["fedsage", "federation", "run", *where, "--resume"],
        ["fedsage", "federation", "abort", *where],
    ]


def test_a_recorded_run_is_not_promised_to_resume(tmp_path: Path) -> None:
    (tmp_path / "messages").touch()
    assert "--resume" not in how_to_resume(["run", "--record"], tmp_path)


@pytest.mark.slow
def test_compare_shows_traffic_and_paired_differences(fedsage: Call) -> None:
    words = ("compare", *SMALL, "--methods", "locsage,fedsage,fedsage+", "--seeds", "2")
    done = fedsage(*words, "--out", "c")
    assert "local" in done.out and "95% interval" in done.out
    assert "global accuracy minus that of fedsage, paired over 2 seeds" in done.out
    found = json.loads(fedsage(*words, "--out", "c", "--resume", "--json").out)
    assert [one["method"] for one in found["differences"]] == ["locsage", "fedsage+"]
    assert all(one["baseline"] == "fedsage" for one in found["differences"])
    rows = {row["method"]: row["global"]["mean"] for row in found["rows"]}
    for one in found["differences"]:
        assert one["mean"] == pytest.approx(rows[one["method"]] - rows["fedsage"])
        assert one["low"] <= one["mean"] <= one["high"]
    sent = {one["method"]: one["up"] + one["down"] for one in found["traffic"]}
    assert sent["locsage"] == 0 < sent["fedsage"]


def row(method: str, values: list[float]) -> Row:
    of = {"mean": values[0], "std": 0.0, "each": values}
    seeds = list(range(len(values)))
    return Row(method, "cora", 3, "louvain", "best", seeds, of, of, 1.0, None)


def test_one_seed_has_a_difference_and_no_interval() -> None:
    some = {"up": 1.0, "down": 1.0}
    found = against_baseline([row("a", [0.5]), row("b", [0.75])], {"a": some, "b": some})
    assert found is not None and difference_cells("b", found) == ("+0.2500", "–")
    assert "on one seed" in title_of_differences(found, 1)
    assert against_baseline([row("a", [0.5])], {"a": some}) is None


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "run", "1 run"),
        (2, "run", "2 runs"),
        (1, "class", "1 class"),
        (7, "class", "7 classes"),
    ],
)
def test_plurals_are_right(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words


def test_figures_are_refused_before_anything_is_trained(
    fedsage: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsage.reproduce.figures.find_spec", lambda name: None)
    done = fedsage("reproduce", "figure-alpha", "--quick")
    assert done.code == 2 and "matplotlib" in done.err
    assert not Path("runs").exists()


def test_of_many_names_only_the_first_are_shown() -> None:
    names = [f"owner-{i}" for i in range(50)]
    assert listed(names[:6]) == "owner-0, owner-1, owner-2, owner-3, owner-4, owner-5"
    some = "owner-0, owner-1, owner-2, owner-3, owner-4 and 45 others"
    assert listed(sorted(names)) == some
