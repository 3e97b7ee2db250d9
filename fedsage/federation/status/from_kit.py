"""Look at a federation from the kit of one party."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace

from fedsage.federation.coordinator.session import Unreachable, looking
from fedsage.federation.kits.certificates import certificate_days
from fedsage.federation.kits.kit import Kit, federation_of
from fedsage.federation.processes.process_ids import lost_its_gate, pid_of
from fedsage.federation.status.status import GONE, OwnerStatus, Server, Status, stored


def status_of(kit: Kit) -> Status:
    """The federation as one party sees it now. Takes seconds with the coordinator's kit."""
    return next(watch(kit))


def watch(kit: Kit, pause: float = 1.0) -> Iterator[Status]:
    """The status again and again."""
    if kit.role != "coordinator":
        while True:
            yield seen_here(kit)
            time.sleep(pause)
    while True:
        try:
            with looking(kit) as look:
                while (found := look()).server == "up":
                    yield with_own(kit, found)
                    time.sleep(pause)
            yield with_own(kit, found)
        except Unreachable as error:
            owners = {name: OwnerStatus() for name in federation_of(kit)["owners"]}
            yield replace(with_own(kit, Status(owners=owners)), note=str(error))
        time.sleep(pause)


def seen_here(kit: Kit) -> Status:
    """The status in the kit of a server or an owner, as far as it is still true."""
    found, age = stored(kit.ours)
    running = pid_of(kit) is not None
    if running and age < GONE:
        return with_own(kit, found.older(age))
    owners = {name: OwnerStatus() for name in federation_of(kit)["owners"]}
    server: Server = "down" if kit.role == "owner" or not running else "not answering"
    return with_own(kit, Status(server=server, owners=owners))


def with_own(kit: Kit, found: Status) -> Status:
    """The status, with what only this party knows of itself."""
    process = None if kit.role == "coordinator" else pid_of(kit)
    note = ""
    if kit.role == "owner" and process is None:
        note = "This owner is not running: use 'fedsage federation start'."
    elif kit.role == "owner" and lost_its_gate(kit):
        note = "The gate of this owner is gone: stop the owner, and start it again."
    return replace(
        found,
        party=kit.name,
        role=kit.role,
        process=process,
        disk_free_bytes=shutil.disk_usage(kit.path).free,
        certificate_days=certificate_days(kit),
        note=note,
    )
