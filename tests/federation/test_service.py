"""A party as a service: the unit, the container files, and the commands that they contain."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedsage.errors import ConfigError
from fedsage.federation.kits.kit import Kit
from fedsage.files import write_json

pytest.importorskip("nvflare")
from fedsage.cli.main import app
from fedsage.federation.processes.service import healthy, quoted, unit_name, unit_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path / "a kit 100%", "owner", "east")
    about = {"server": "localhost:8102", "owners": ["east"]}
    write_json(made.ours / "federation.json", about)
    write_json(made.ours / "owner.json", {"data": "/data"})
    return made


def test_a_unit_starts_the_party_in_the_foreground_and_protects_the_rest(
    kit: Kit, tmp_path: Path
) -> None:
    text = unit_of(kit)
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    words = shlex.split(start.replace("%%", "%"))
    assert words[-4:] == ["federation", "start", str(kit.path), "--foreground"]
    assert f"ReadWritePaths={quoted(str(kit.path))}" in text
    for line in ("ProtectSystem=strict", "NoNewPrivileges=yes", "WantedBy=default.target"):
        assert line in text
    assert "User=fed" in unit_of(kit, "fed") and "multi-user.target" in unit_of(kit, "fed")
    if verify := shutil.which("systemd-analyze"):
        file = tmp_path / unit_name(kit)
        file.write_text(text)
        done = subprocess.run(
            [verify, "verify", "--man=no", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert unit_name(kit) not in done.stderr, done.stderr
    with pytest.raises(ConfigError, match="needs no service"):
        unit_of(Kit(kit.path, "coordinator", "coordinator"))
    (kit.ours / "owner.json").unlink()
    with pytest.raises(ConfigError, match="does not know its data"):
        unit_of(kit)


def test_a_party_that_does_not_run_is_not_healthy(kit: Kit) -> None:
    (kit.path / "startup").mkdir()
    assert not healthy(kit)


def commands() -> list[list[str]]:
    """The fedsage commands in the container files."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"].values()
    found = [one["command"] for one in services if one.get("command", [""])[:1] == ["start"]]
    (script,) = compose["services"]["kits"]["command"]
    found += [
        shlex.split(one)[1:] for one in re.findall(r"fedsage split [^&)]*", script)
    ]  # fmt: skip
    inits = re.findall(r"fedsage federation (init [^&)]*)", script)
    return [["federation", *one] if one[0] == "start" else one for one in found] + [
        ["federation", *shlex.split(one)] for one in inits
    ]


def test_the_commands_in_the_container_files_exist() -> None:
    assert len(commands()) == 6
    for words in commands():
        flags = [word for word in words if word.startswith("--")]
        names = words[: 2 if words[0] == "federation" else 1]
        shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, words
        assert all(flag in shown.output for flag in flags), words


def test_containers_have_no_root_and_a_read_only_disk() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    owners = [name for name in services if name.startswith("owner-")]
    assert len(owners) == 3 and {"server", "kits", "coordinator"} <= set(services)
    for name, one in services.items():
        assert one["read_only"] and one["cap_drop"] == ["ALL"], name
        assert (one.get("user") == "0") == (name == "volume"), name
    for name in ("server", *owners):
        assert services[name]["healthcheck"]["test"][:4] == [
            "CMD", "python", "-m", "fedsage.federation.processes.service",
        ]  # fmt: skip
    docker = (ROOT / "Dockerfile").read_text()
    lines = [line.split(" ", 1) for line in docker.splitlines() if re.match(r"[A-Z]+ ", line)]
    order = [name for name, _ in lines]
    assert order[0] == "FROM" and ":" in lines[0][1] and not lines[0][1].endswith("latest")
    assert order.index("USER") > max(i for i, name in enumerate(order) if name == "RUN")
    assert {"HEALTHCHECK", "ENTRYPOINT", "STOPSIGNAL", "VOLUME"} <= set(order)
    for source in re.findall(r"^COPY (.*) \S+$", docker, re.M):
        assert all((ROOT / name).exists() for name in source.split()), source
