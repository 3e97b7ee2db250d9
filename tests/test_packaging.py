"""What users install: extras and their hints, types, what the archives hold, a clean start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import fedsage
from fedsage.runs.track import EXTRAS as TRACKERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LINUX = "; sys_platform == 'linux'"
ALONE = {"wandb", "mlflow"}  # by themselves: an account, a server
HINT = re.compile(r"fedsage\[([a-z, ]+)\]")
SPOKEN = [*(ROOT / "fedsage").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
PYTHONS = [f"python3.{minor}" for minor in range(10, 14)]


def test_all_is_every_extra_for_users_and_federation_on_linux_alone() -> None:
    spelled = {one.removesuffix(LINUX) for one in EXTRAS["all"]}
    for name in EXTRAS.keys() - ALONE - {"all", "dev", "docs"}:
        assert set(EXTRAS[name]) <= spelled, name
    marked = {one.removesuffix(LINUX) for one in EXTRAS["all"] if one.endswith(LINUX)}
    assert marked == set(EXTRAS["federation"])
    assert not any("fedsage[" in one for one in EXTRAS["all"])


def test_every_hint_names_extras_that_exist() -> None:
    named = {
        extra.strip()
        for path in SPOKEN
        for found in HINT.findall(path.read_text())
        for extra in found.split(",")
    }
    assert {"plots", "federation", "track"} <= named <= EXTRAS.keys()
    assert set(TRACKERS.values()) <= EXTRAS.keys()


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(fedsage.__file__).parent / "py.typed").is_file()


def test_the_version_has_a_date_in_the_changelog_and_stands_in_the_citation() -> None:
    version = PROJECT["project"]["version"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} — \d{{4}}-\d\d-\d\d", headings[1])
    date = headings[1].split()[-1]
    cited = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {version}" in cited and f"date-released: {date}" in cited


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


def test_workflows_call_targets_that_make_has() -> None:
    folder = ROOT / ".github" / "workflows"
    if not folder.is_dir():
        pytest.skip("not a checkout")
    called = {
        target
        for path in folder.glob("*.yml")
        for target in re.findall(r"\brun: make ([a-z-]+)", path.read_text())
    }
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"test", "build", "docs"} <= called <= made


def call(*words: str | Path, within: Path, minutes: float = 20) -> str:
    """What a command prints, run as a user would: without what this process was given."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words], cwd=within, env=env, text=True, capture_output=True,
        timeout=minutes * 60,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built as they are published."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT, within=folder)
    return folder


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
def test_the_package_index_would_take_both_archives(archives: Path) -> None:
    pytest.importorskip("twine")
    files = sorted(archives.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    call(sys.executable, "-m", "twine", "check", "--strict", *files, within=archives)


@pytest.mark.slow
def test_the_source_archive_holds_tests_and_examples(archives: Path) -> None:
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    for path in ("tests/test_packaging.py", "examples/quickstart.py", "SECURITY.md"):
        assert path in inside
    assert not [name for name in inside if "__pycache__" in name or name.endswith(".npz")]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_runs_in_a_clean_environment_and_every_extra_can_be_had(
    python: str, archives: Path, tmp_path: Path
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
