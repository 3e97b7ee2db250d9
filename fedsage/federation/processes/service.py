"""A party as a service of its machine: in the foreground, as a unit of systemd, and its health.

``python -m fedsage.federation.processes.service KIT`` ends with 0 if the party runs and sees
the server.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from fedsage.errors import ConfigError, FedSageError
from fedsage.federation.kits.kit import OWNER, Kit, open_kit
from fedsage.federation.processes.process_ids import running
from fedsage.federation.processes.start import start, stop
from fedsage.federation.status.from_kit import seen_here

LOOK = 1.0  # seconds between two looks at the process
UNIT = """\
[Unit]
Description=fedsage: {name}, {role} of a federation
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={start}
Restart=on-failure
RestartSec=5
TimeoutStopSec=30
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={kit}
PrivateTmp=yes
{user}
[Install]
WantedBy={target}
"""


def unit_name(kit: Kit) -> str:
    """The name of a party's unit."""
    return f"fedsage-{kit.name}.service"


def unit_of(kit: Kit, user: str | None = None) -> str:
    """The unit that starts a party with its machine, as ``user``, or with its session."""
    if kit.role == "coordinator":
        raise ConfigError("A coordinator's kit needs no process, so it needs no service.")
    if kit.role == "owner" and not (kit.ours / OWNER).exists():
        raise ConfigError(
            "This kit does not know its data yet. Start it once with 'fedsage federation start "
            "KIT --data FOLDER', then make the service."
        )
    words = [sys.executable, "-m", "fedsage", "federation", "start", str(kit.path)]
    return UNIT.format(
        name=kit.name,
        role=kit.role,
        start=" ".join(map(quoted, [*words, "--foreground"])),
        kit=quoted(str(kit.path)),
        user=f"User={user}\n" if user else "",
        target="multi-user.target" if user else "default.target",
    )


def quoted(word: str) -> str:
    """A word of a command or a path, as systemd reads it."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if text != word or any(one in word for one in " ';") else word


def stay(kit: Kit, data: Path | None, tell: Callable[[str], None]) -> None:
    """Start a party and stay until it ends; a signal stops it in good order."""
    ended = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, frame: ended.set())
    start(kit, data, tell, wait=False)
    tell(f"{kit.name} is starting; its log is in {kit.ours}")
    while not ended.wait(LOOK):
        if not running(kit):
            raise FedSageError(f"{kit.name} has ended by itself. Its log says why: {kit.ours}")
    stop(kit)
    tell(f"{kit.name} has stopped")


def healthy(kit: Kit) -> bool:
    """Whether a party runs and sees the server."""
    found = seen_here(kit)
    return found.process is not None and found.server == "up"


if __name__ == "__main__":
    sys.exit(0 if healthy(open_kit(Path(sys.argv[1]))) else 1)
