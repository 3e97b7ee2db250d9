"""What only a real process shows: how long it takes to start, and what a kill leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsage.models.classifier import load_models
from fedsage.rng import generator
from fedsage.runs.folder import read_result
from tests.cli.conftest import SMALL

FEDSAGE = [sys.executable, "-m", "fedsage"]


@pytest.mark.parametrize("words", [["-m", "fedsage", "--help"], ["-c", "import fedsage"]])
def test_starting_does_not_import_torch(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "fedsage" in imported
    assert not imported & {"torch", "igraph", "pyarrow"}


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--version"], ["methods", "--json"]])
def test_output_that_nobody_reads_is_no_error_and_output_that_is_lost_is_one(
    words: list[str],
) -> None:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*FEDSAGE, *words], stdout=subprocess.PIPE, stderr=quiet) as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.wait() == 0
    with open("/dev/full", "w") as full:
        lost = subprocess.run(
            [*FEDSAGE, *words], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert lost.returncode == 2 and lost.stderr.startswith("Error: No space left on device")
    assert lost.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_run_does_not_load_the_compiler_of_torch() -> None:
    code = """
import sys
from fedsage.config import load_config
from fedsage.runs.execute import run_config
small = {"data": {"dataset": "synthetic"}, "synthetic": {"nodes": 60}}
small |= {"classifier": {"rounds_c": 1}, "neighgen": {"rounds_gen": 1}}
for kernel in ("fused", "torch"):
    run = {"method": "fedsage+neighgen", "kernel": kernel}
    run_config(load_config(small, {"run": run}))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_the_public_names_are_there() -> None:
    code = "import fedsage as fs; print([getattr(fs, name) for name in fs.__all__] and 'ok')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_no_half_file() -> None:
    draws, times = generator(0, "kills"), 4
    longer = [*SMALL, "--set", "classifier.rounds_c=40"]
    for attempt in range(times):
        folder = Path(f"run{attempt}")
        process = subprocess.Popen(
            [*FEDSAGE, "run", *longer, "--out", str(folder)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not (folder / "history.jsonl").exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep((attempt + float(draws.random())) / times * 0.6)  # early and late
        process.send_signal(signal.SIGKILL)
        process.wait()
        for line in (folder / "history.jsonl").read_text().splitlines():
            assert json.loads(line)["phase"] == "training"
        if (folder / "result.json").exists():
            assert read_result(folder)["method"] == "fedsage+"
            load_models(folder)
