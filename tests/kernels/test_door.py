"""The door alone leads to compiled code, and what it warms up is what runs use."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedsage
from fedsage.kernels import door, nearest, product, sage
from fedsage.kernels.compiling import stamp_of

PACKAGE = Path(fedsage.__file__).parent
KERNELS = PACKAGE / "kernels"


@pytest.mark.slow
def test_a_run_compiles_nothing_that_was_not_warmed_up(train: object) -> None:
    door.warm_up()
    compiled = sage.epoch, sage.logits, product.add_product, nearest.search
    train("fedsage+", mend={"how": "neighgen"})  # type: ignore[operator]
    assert [len(one.signatures) for one in compiled] == [1, 1, 1, 1]


@pytest.mark.slow
def test_nobody_outside_goes_past_the_door() -> None:
    for source in PACKAGE.rglob("*.py"):
        if source.is_relative_to(KERNELS):
            continue
        for node in ast.walk(ast.parse(source.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("fedsage.kernels"):
                names = {name.name for name in node.names}  # type: ignore[attr-defined]
                assert module == "fedsage.kernels.door" or names == {"door"}, source


def test_only_one_file_is_written_in_llvm_s_language() -> None:
    files = {file.name for file in PACKAGE.rglob("*.py") if "llvmlite" in file.read_text()}
    assert files == {"lowlevel.py"}


def test_the_stamp_changes_with_any_source(tmp_path: Path) -> None:
    for source in KERNELS.glob("*.py"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = stamp_of(tmp_path)
    assert before == stamp_of(KERNELS)
    with (tmp_path / "parts.py").open("a") as file:
        file.write("# more\n")
    assert stamp_of(tmp_path) != before


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code = "from fedsage.kernels.door import warm_up; warm_up()"
    folder = str(file / "cache")  # nobody can make a folder inside a file, not even root
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": folder}
    )
