"""How many threads a dense product may use: this affects how sums are rounded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits


@contextlib.contextmanager
def dense_threads(threads: int) -> Iterator[None]:
    """Let dense products use ``threads`` threads inside, and the former number afterwards.

    Note:
        Torch's number applies to the thread that sets it: another one, where nothing was set,
        uses all cores and gives other bits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
