"""An owner's gate: the process that writes ``sent.jsonl`` and starts all the others.

``python -m fedsage.federation.processes.gate FOLDER COMMAND …`` starts NVFlare's client with
that command and ends with it. Jobs, its children, ask for a line over a socket that only this
user can open, and send nothing until the line is acknowledged. The gate chooses the file,
adds the time and the checksum of the line before, and remembers where every log ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsage.errors import StorageError
from fedsage.federation.processes.log import note
from fedsage.federation.processes.process_ids import CLIENT, remember
from fedsage.protocol.sent_log import RUN_NAME, SENT, Ledger

SOCKET, RUNS = "gate.sock", "runs"
LONGEST = 1 << 20  # bytes of a line
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before the client is started again
PATIENCE = 30.0  # seconds for a line to be on disk
GONE = (
    f"The gate that writes {SENT} does not answer, so nothing was sent. Stop this owner, then "
    "start it again with 'fedsage federation start'."
)


@contextmanager
def address(folder: Path) -> Iterator[str]:
    """The path of a folder's socket, short enough wherever the folder is."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def ask_gate(folder: Path, line: Mapping[str, Any]) -> str:
    """Ask the gate to add a line to the log of a run; returns the line's checksum.

    Args:
        folder: The folder of the run, ``…/runs/RUN`` beside the gate's socket.
        line: The line's fields.
    """
    wanted = json.dumps({"run": folder.name, "line": line}).encode() + b"\n"
    try:
        with address(folder.parent.parent) as path, socket.socket(socket.AF_UNIX) as talk:
            talk.settimeout(PATIENCE)
            talk.connect(path)
            talk.sendall(wanted)
            answer = json.loads(talk.makefile("rb").readline(LONGEST))
    except (OSError, ValueError):
        raise StorageError(GONE) from None
    if "error" in answer:
        raise StorageError(str(answer["error"]))
    return str(answer["sha256"])


class Desk(socketserver.ThreadingUnixStreamServer):
    """Accepts lines from processes of this user."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger, self.one = folder, Ledger(), threading.Lock()
        (folder / SOCKET).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with address(folder) as path:
                super().__init__(path, Visit)
        finally:
            os.umask(before)

    def write(self, wanted: bytes) -> dict[str, str]:
        """Add a line; returns its checksum, or why it was not added."""
        try:
            asked = json.loads(wanted)
            run, line = asked["run"], dict(asked["line"])
            if not RUN_NAME.fullmatch(run):
                return {"error": "The gate was asked for a run with an invalid name."}
            with self.one:
                return {"sha256": self.ledger.append(self.folder / RUNS / run, line)}
        except StorageError as error:
            return {"error": str(error)}
        except OSError as error:
            words = f"{SENT} cannot be written ({error.strerror}), so nothing was sent."
            return {"error": words}
        except (ValueError, KeyError, TypeError):
            return {"error": "The gate was asked to write something that is not a line."}


class Visit(socketserver.StreamRequestHandler):
    """Handles one line, and answers it."""

    server: Desk

    def handle(self) -> None:
        """Refuse other users, whatever the folder's permissions."""
        told = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = struct.unpack("3i", told)
        if user == os.getuid():
            answer = self.server.write(self.rfile.readline(LONGEST))
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def main(folder: Path, command: list[str]) -> int:
    """Open the gate, start the client, and close when it was told to end."""
    with Desk(folder) as desk:
        threading.Thread(target=desk.serve_forever, daemon=True).start()
        code = kept_up(folder, command)
        desk.shutdown()
    (folder / SOCKET).unlink(missing_ok=True)
    return code


def kept_up(folder: Path, command: list[str]) -> int:
    """Start the client again, after a growing pause, until it ends well or must stop."""
    pause, told = FIRST_PAUSE, threading.Event()
    clients: list[subprocess.Popen[bytes]] = []

    def leave(number: int, frame: object) -> None:
        told.set()
        for one in clients:
            one.terminate()

    signal.signal(signal.SIGTERM, leave)
    while True:
        begin = time.monotonic()
        clients[:] = [subprocess.Popen(command)]
        remember(folder / CLIENT, clients[0].pid)
        code = clients[0].wait()
        if time.monotonic() - begin > LONGEST_PAUSE:
            pause = FIRST_PAUSE
        if code == 0 or told.wait(pause):
            return code
        note(folder, f"The client ended ({code}) and is started again, after {pause:.0f} s.")
        pause = min(2 * pause, LONGEST_PAUSE)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
