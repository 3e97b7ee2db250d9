"""A local process that tries to join a party as one of its own jobs.

``python -m tests.federation.intruder URL PARTY [CERTIFICATE KEY CA]`` says in JSON whether the
party took it in, and what the party then told it about itself.
"""

from __future__ import annotations

import json
import os
import sys
import time

import psutil
from nvflare.fuel.f3.cellnet.core_cell import CoreCell, Message
from nvflare.fuel.f3.drivers.driver_params import DriverParams

PATIENCE = 7.0  # seconds to be taken in
KEPT = 2.0  # seconds: NVFlare says hello to all, and then closes to those it refuses


def lines_to(url: str) -> set[int]:
    """Our ends of the connections to the party that are open now."""
    port, all_ours = int(url.rpartition(":")[2]), psutil.Process().net_connections("tcp")
    up = [one for one in all_ours if one.status == psutil.CONN_ESTABLISHED]
    return {one.laddr.port for one in up if one.raddr.port == port}


def join(url: str, party: str, shown: list[str]) -> dict[str, object]:
    """Connect as a child of the party, and ask it about its process."""
    names = (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY, DriverParams.CA_CERT)
    credentials = {name.value: path for name, path in zip(names, shown, strict=False)}
    cell = CoreCell(f"{party}.intruder", "", bool(shown), credentials, parent_url=url)
    cell.start()
    begin = since = now = time.monotonic()
    held: set[int] = set()
    while now - begin < PATIENCE and now - since < KEPT:
        held = (held & lines_to(url)) if party in cell.agents else set()
        if not held:
            held, since = lines_to(url), now
        time.sleep(0.01)
        now = time.monotonic()
    if now - since < KEPT:
        return {"joined": False}
    reply = cell.send_request("_net_manager", "process_info", party, Message({}, {}), timeout=3)
    if reply.payload is None:  # a line that is up for a moment, and nobody who answers
        return {"joined": False}
    return {"joined": True, "told": str(reply.payload)[:200]}


if __name__ == "__main__":
    print(json.dumps(join(sys.argv[1], sys.argv[2], sys.argv[3:])), flush=True)
    os._exit(0)  # NVFlare's threads would try again for ever
