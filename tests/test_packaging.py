"""What users install: markers, types, and what the source archive holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fedsage

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LINUX = "; sys_platform == 'linux'"


def test_all_is_every_extra_for_users_and_federation_on_linux_alone() -> None:
    assert set(EXTRAS["track"]) <= set(EXTRAS["all"])
    marked = {one.removesuffix(LINUX) for one in EXTRAS["all"] if one.endswith(LINUX)}
    assert marked == set(EXTRAS["federation"])
    assert not any("fedsage[" in one for one in EXTRAS["all"])


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(fedsage.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    "path", PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
)
def test_what_the_source_archive_holds_is_there_and_named_from_the_root(path: str) -> None:
    assert path.startswith("/") and (ROOT / path[1:]).exists()


def test_no_module_is_ignored_by_git_and_so_left_out_of_the_archives() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "fedsage"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not [path for path in done.stdout.splitlines() if path.endswith(".py")]
