"""Workers do not outlive the study that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
import multiprocessing, os
from fedsage.reproduce.cells import leave_with_parent
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, spawn, leave_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_worker_ends_with_a_study_that_was_killed(tmp_path: object) -> None:
    assert multiprocessing.parent_process() is None  # this process is nobody's worker
    script = os.path.join(str(tmp_path), "study.py")
    with open(script, "w") as file:
        file.write(SCRIPT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as study:
        assert study.stdout is not None
        worker = int(study.stdout.readline())
        assert alive(worker)
        study.send_signal(signal.SIGKILL)
    for _ in range(200):
        if not alive(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker went on without its study")
