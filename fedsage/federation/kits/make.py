"""Startup kits: certificates and hardened settings for the server, owners and coordinator."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError
from fedsage.federation.consent.policy import POLICY, with_rules
from fedsage.federation.consent.policy_text import TEXT
from fedsage.federation.kits.kit import (
    COORDINATOR,
    FEDERATION,
    JOBS,
    OURS,
    SECRET,
    Kit,
    open_kit,
)
from fedsage.federation.kits.texts import ABOUT, LOGGING, WORDS
from fedsage.files import write_json
from fedsage.readable import natural

NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
MAY_BE_BUILT = [
    "fedsage.federation.nvflare_server.FedSageController",
    "fedsage.federation.nvflare_owner.FedSageExecutor",
    "fedsage.federation.nvflare_owner.OnlyMessages",
    "nvflare.app_common.logging.",
]  # classes that a job may name
PARTS = {
    "server": {
        "presence": "fedsage.federation.presence.ServerPresence",
        "admission": "fedsage.federation.admission.Admission",
    },
    "owner": {"presence": "fedsage.federation.presence.OwnerPresence"},
}  # our components in NVFlare's processes, by their ids
NOBODY = {"submit_job": "none", "clone_job": "none", "manage_job": "none",
          "download_job": "none", "view": "none", "operate": "none",
          "shell_commands": "none", "byoc": "none"}  # fmt: skip
LEAD = NOBODY | {"submit_job": "any", "manage_job": "n:submitter", "view": "any",
                 "download_job": "n:submitter"}  # fmt: skip

INNER = {
    "allow_adhoc_conns": False,
    "internal": {
        "scheme": "atcp",  # handles many handshakes at once: a silent peer blocks nobody else
        "resources": {"host": "localhost", "connection_security": "mtls"},
    },
    "streaming_retry_wait": 60,  # seconds before an unanswered message is sent again
}  # how a party's processes talk to each other


def make_kits(server: str, owners: Sequence[str], out: Path) -> list[Kit]:
    """One kit for every party, with certificates of one new authority.

    Args:
        server: ``HOST:PORT``, the address at which owners reach the server.
        owners: Their names.
        out: The folder to write; it must be empty.
    """
    host, port = checked_address(server)
    names = checked_names(owners)
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out {out} is not empty. Choose another folder.")
    with tempfile.TemporaryDirectory() as scratch:
        made = provisioned(host, port, names, Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        places = {host: "server", COORDINATOR: "coordinator"} | {name: name for name in names}
        kits = []
        for source, target in places.items():
            shutil.move(made / source, out / target)
            kits.append(open_kit(out / target))
        shutil.move(made.parent / "state", out / "authority")
    os.chmod(out / "authority", 0o700)
    about = {"server": server, "host": host, "port": port, "owners": names}
    return [settled_kit(kit, about) for kit in kits]


def settled_kit(kit: Kit, about: Mapping[str, Any]) -> Kit:
    """A new kit with our settings; ``about`` says who belongs to the federation."""
    harden(kit)
    (kit.path / "readme.txt").write_text(ABOUT.format(kit=kit.path, **WORDS[kit.role]))
    write_json(kit.ours / FEDERATION, {**about, "role": kit.role, "name": kit.name})
    os.chmod(kit.path, 0o700)
    if kit.role == "owner":
        keep_secret(kit, secrets.token_hex(32))
    if kit.role == "owner" and len(about["owners"]) > 2:
        # of two owners, each can compute the other's part of a sum
        (kit.path / "local" / POLICY).write_text(with_rules({"privacy": ["sums", "private"]}))
    return kit


def keep_secret(kit: Kit, secret: str) -> None:
    """Store the secret that, with a run's seed, makes an owner's draws unpredictable."""
    write_secret(kit.ours / SECRET, secret)


def write_secret(file: Path, secret: str) -> None:
    """Write a file that only its owner can read."""
    file.touch(0o600)
    file.write_text(secret)


def secret_of(ours: Path) -> str:
    """The secret in a kit; older kits have none."""
    file = ours / SECRET
    return file.read_text().strip() if file.exists() else ""


def own_secret(ours: Path) -> str:
    """The secret of an owner; in an older kit, one is made now."""
    if not (ours / SECRET).exists():
        write_secret(ours / SECRET, secrets.token_hex(32))
    return secret_of(ours)


def checked_address(server: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"--server is '{server}', but must be HOST:PORT, e.g. fed.example.org:8102."
        )
    return host, int(port)


def is_name(name: str) -> bool:
    """Whether an owner may be called so."""
    taken = ("server", "coordinator", "authority")
    return NAME.fullmatch(name) is not None and name not in taken


def checked_names(owners: Sequence[str]) -> list[str]:
    """Owners' names, in the order of their numbers."""
    names = sorted(owners, key=natural)
    for name in names:
        if not is_name(name):
            raise ConfigError(
                f"Owner '{name}' is not a valid name: use a lower-case letter, then letters, "
                "digits and '-'; not 'server', 'coordinator' or 'authority'."
            )
    if len(set(names)) < len(names) or not names:
        raise ConfigError("--owners needs different names, e.g. --owners east,north,west.")
    return names


def provisioned(host: str, port: int, owners: Sequence[str], scratch: Path) -> Path:
    """Let NVFlare make certificates and startup files; returns their folder.

    The state of an authority in ``scratch/work/fedsage/state`` is used, and added to.
    """
    people: list[dict[str, Any]] = [
        {"name": host, "type": "server", "org": OURS, "fed_learn_port": port},
        *({"name": name, "type": "client", "org": OURS} for name in owners),
        {"name": COORDINATOR, "type": "admin", "org": OURS, "role": "lead"},
    ]
    lighter = "nvflare.lighter.impl"
    builders = [
        {"path": f"{lighter}.workspace.WorkspaceBuilder",
         "args": {"template_file": ["master_template.yml"]}},
        {"path": f"{lighter}.static_file.StaticFileBuilder",
         "args": {"config_folder": "config", "scheme": "grpc"}},
        {"path": f"{lighter}.cert.CertBuilder", "args": {}},
        {"path": f"{lighter}.signature.SignatureBuilder", "args": {}},
    ]  # fmt: skip
    project = {"api_version": 3, "name": OURS, "description": OURS, "participants": people,
               "builders": builders}  # fmt: skip
    file = scratch / "project.yml"
    file.write_text(json.dumps(project))  # JSON is YAML
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w",
               str(scratch / "work"), "--force"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False)
    found = scratch / "work" / OURS / "prod_00"
    if done.returncode or not found.is_dir():
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ConfigError(
            f"NVFlare could not make the kits: {last[-1] if last else 'it gave no reason'}"
        )
    return found


def harden(kit: Kit) -> None:
    """No shipped code, no uploaded logs, no shell, a separate job store, our filter."""
    local = kit.path / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = MAY_BE_BUILT
    resources["allow_log_streaming"] = False
    held = resources.get("components", [])
    resources["components"] = [one for one in held if one["id"] != "site_log_streamer"]
    for one in resources["components"]:
        if one["id"] == "job_scheduler":
            one["args"]["max_jobs"] = 1  # two jobs must never work on one run
    write_json(local / "resources.json", resources)
    if kit.role == "coordinator":
        return
    close_inside(kit)
    permissions = {"project_admin": NOBODY, "org_admin": NOBODY, "lead": LEAD, "member": NOBODY}
    write_json(
        local / "authorization.json", {"format_version": "1.0", "permissions": permissions}
    )
    if kit.role == "owner":
        only = {"path": "fedsage.federation.nvflare_owner.OnlyMessages", "args": {}}
        scope = {"name": OURS, "properties": {}, "task_result_filters": [only]}
        write_json(local / "privacy.json", {"scopes": [scope], "default_scope": OURS})
        (local / POLICY).write_text(TEXT)


def close_inside(kit: Kit) -> None:
    """Let only holders of the party's own certificate connect as one of its jobs.

    NVFlare searches the whole kit for this file and takes the first, which is the one at the
    top. So a file that came with a job is never used.
    """
    write_json(kit.path / "comm_config.json", INNER)


def settle_in(kit: Kit) -> None:
    """Give a party its signs of life; a server also admits members only, and stays inside."""
    file = kit.path / "local" / "resources.json"
    resources = json.loads(file.read_text())
    parts = PARTS[kit.role]
    ours = [{"id": name, "path": path, "args": {}} for name, path in parts.items()]
    others = [one for one in resources["components"] if one["id"] not in parts]
    resources["components"] = [*others, *ours]
    if kit.role == "server":
        keep_inside(resources, kit.ours)
    write_json(file, resources)
    write_json(kit.path / "local" / "log_config.json", LOGGING)
    (kit.path / "readme.txt").write_text(ABOUT.format(kit=kit.path, **WORDS[kit.role]))


def keep_inside(resources: dict[str, Any], ours: Path) -> None:
    """Let the server store everything in its kit, wherever that was moved to."""
    snapshots = resources["snapshot_persistor"]["args"]["storage"]["args"]
    snapshots["root_dir"] = str(ours / "snapshots")
    for one in resources["components"]:
        if one["id"] == "job_manager":
            one["args"]["uri_root"] = str(ours / JOBS)
