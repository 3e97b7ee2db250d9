"""What users install: extras and their hints, types, what the archives hold, a clean start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
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
def test_the_wheel_alone_runs_beside_what_it_requires(archives: Path, tmp_path: Path) -> None:
    """In an environment that has no other fedsage. ``full_install.py`` fetches everything."""
    version, pip = PROJECT["project"]["version"], (sys.executable, "-m", "pip", "--python")
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean", within=tmp_path)
    inside = tmp_path / "clean" / "bin" / "python"
    offline = ("install", "--quiet", "--disable-pip-version-check", "--no-index")
    wheel = next(archives.glob("*.whl"))
    call(*pip, inside, *offline, "--no-deps", wheel, within=tmp_path)
    (site,) = (tmp_path / "clean" / "lib").glob("python*/site-packages")
    (site / "required.pth").write_text(sysconfig.get_path("purelib"))
    few = ("synthetic.nodes=200", "classifier.rounds_c=2", "run.kernel=torch")  # compiles not
    words = ("run", "--dataset", "synthetic", "--json", *(f"--set={one}" for one in few))
    found = json.loads(call(inside.with_name("fedsage"), *words, within=tmp_path))
    assert found["graph"]["nodes"] == 200
    record = json.loads((tmp_path / found["out"] / "result.json").read_text())
    assert record["versions"]["fedsage"] == version
    where = call(inside, "-c", "import fedsage; print(fedsage.__file__)", within=tmp_path)
    assert Path(where.strip()).is_relative_to(site)
    everything = f"fedsage[all,dev,docs]=={version}"
    call(*pip, inside, *offline, "--dry-run", everything, within=tmp_path)
