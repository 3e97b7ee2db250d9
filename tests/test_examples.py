from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_is_short(script: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert len(script.read_text().splitlines()) < 60


@pytest.mark.slow
def test_the_hospitals_tables_are_those_that_the_example_writes(tmp_path: Path) -> None:
    script = next(path for path in EXAMPLES if path.stem == "hospitals")
    words = [sys.executable, str(script), str(tmp_path / "written")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, written = script.with_suffix(""), tmp_path / "written"
    files = {path.relative_to(kept) for path in kept.rglob("*.*")}
    assert files == {path.relative_to(written) for path in written.rglob("*.*")}
    for name in files:
        assert (written / name).read_text() == (kept / name).read_text(), name
