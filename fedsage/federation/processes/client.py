"""NVFlare's client at an owner, without what it does not need while no run is in progress.

NVFlare loads all drivers and decomposers that it finds. Those for HTTP and for NumPy arrays are
used by nobody here and take a third of the memory of an idle owner, so they are not found.
"""

from __future__ import annotations

import ctypes
import runpy
import sys

UNUSED = (
    "nvflare.fuel.f3.drivers.aio_http_driver",
    "nvflare.app_common.decomposers.numpy_decomposers",
)
CLIENT = "nvflare.private.fed.app.client.client_train"
ARENAS, MOST = -8, 2  # M_ARENA_MAX of mallopt: pools of memory that all threads share


def main() -> None:
    """Become the client; the command line is NVFlare's."""
    for name in UNUSED:  # importing them fails, which NVFlare allows for
        sys.modules[name] = None  # type: ignore[assignment]
    ctypes.CDLL(None).mallopt(ARENAS, MOST)
    runpy.run_module(CLIENT, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
