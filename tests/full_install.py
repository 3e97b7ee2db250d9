"""The wheel and every extra from the package index, by each Python on this machine.

It takes minutes, so that only ``make build`` runs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.test_packaging import EXTRAS, PROJECT, ROOT, archives, call  # noqa: F401

PYTHONS = [f"python3.{minor}" for minor in range(10, 14)]


def pip(python: Path, *words: str | Path, within: Path) -> str:
    quiet = ("install", "--quiet", "--disable-pip-version-check")
    return call(python, "-m", "pip", *quiet, *words, within=within)


def runs(python: str) -> bool:
    """Whether that Python is on the path and answers: a shim may stand for one that is not."""
    found = shutil.which(python)
    return (
        bool(found) and not subprocess.run([found, "--version"], capture_output=True).returncode
    )


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_runs_in_a_clean_environment_and_every_extra_can_be_had(
    python: str,
    archives: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    if not runs(python):
        pytest.skip(f"{python} is not on this machine")
    call(python, "-m", "venv", tmp_path / "clean", within=tmp_path)
    inside = tmp_path / "clean" / "bin" / "python"
    wheel = next(archives.glob("*.whl"))
    tested = ("-c", ROOT / "constraints.txt")
    pip(inside, *tested, wheel, within=tmp_path)
    few = ("--set", "synthetic.nodes=200", "--set", "classifier.rounds_c=2")
    out = call(tmp_path / "clean" / "bin" / "fedsage", "run", "--dataset", "synthetic", *few,
               "--json", within=tmp_path)  # fmt: skip
    found = json.loads(out)
    assert found["graph"]["nodes"] == 200
    assert (
        json.loads((tmp_path / found["out"] / "result.json").read_text())["versions"]["fedsage"]
        == (PROJECT["project"]["version"])
    )
    for extras, pins in extras_by_pins(tested):
        pip(inside, "--dry-run", *pins, f"{wheel}[{','.join(extras)}]", within=tmp_path)


def extras_by_pins(
    tested: Sequence[str | Path],
) -> list[tuple[list[str], Sequence[str | Path]]]:
    """All extras: together with the versions we tested, but MLflow, which holds some back."""
    return [(sorted(EXTRAS.keys() - {"mlflow"}), tested), (["mlflow"], ())]
