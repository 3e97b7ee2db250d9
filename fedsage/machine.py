"""What results depend on: the machine, versions, the threads of dense products.

Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fedsage", "torch", "numpy", "scipy", "igraph", "pymetis")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the source tree, if run from one; ``-dirty`` if the package changed."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        dirty = "-dirty" if git("status", "--porcelain", "--", "fedsage") else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, str | int | None]:
    """The kind of machine, without its name."""
    return {"system": platform.system(), "arch": platform.machine(), "cpus": os.cpu_count()}


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def forget_peak() -> None:
    """Let :func:`peak_rss_mb` count from now on, where the system can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_mb() -> float:
    """The most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux; its ru_maxrss would also count the parent's memory
        lines = status.read_text().splitlines()
        return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmHWM")), 0.0)
    if sys.platform == "win32":
        return 0.0
    import resource  # does not exist on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


@contextlib.contextmanager
def dense_threads(threads: int) -> Iterator[None]:
    """Let dense products use ``threads`` threads inside, and the former number afterwards.

    Note:
        Torch's number applies to the thread that sets it: another one, where nothing was set,
        uses all cores and gives other bits.
    """
    import torch  # not above: it takes a second to load
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
