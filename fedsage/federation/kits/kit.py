"""A startup kit: a party's folder, with names of what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedsage.errors import ConfigError

Role: TypeAlias = Literal["server", "owner", "coordinator"]
COORDINATOR = "coordinator@fedsage.local"
OURS = "fedsage"  # our folder in a kit
JOBS = "jobs"  # in it, at the server: where NVFlare stores jobs
OWNER, FEDERATION, SECRET = "owner.json", "federation.json", "secret"


@dataclass(frozen=True, slots=True)
class Kit:
    """A party's folder."""

    path: Path
    role: Role
    name: str

    @property
    def ours(self) -> Path:
        """Where fedsage keeps its own files in a kit."""
        return self.path / OURS


def open_kit(path: Path) -> Kit:
    """The kit in a folder; refuses a folder without one."""
    roles: dict[str, Role] = {
        "fed_server.json": "server",
        "fed_client.json": "owner",
        "fed_admin.json": "coordinator",
    }
    for file, role in roles.items():
        if (path / "startup" / file).is_file():
            about = path / OURS / FEDERATION
            known = json.loads(about.read_text()) if about.exists() else {}
            return Kit(path.resolve(), role, known.get("name", path.resolve().name))
    raise ConfigError(
        f"{path} is not a startup kit: it has no startup/fed_….json. Give a folder that "
        "'fedsage federation init' wrote."
    )


def federation_of(kit: Kit) -> dict[str, Any]:
    """Who belongs to the federation of a kit."""
    return dict(json.loads((kit.ours / FEDERATION).read_text()))
