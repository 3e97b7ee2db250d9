"""Whole runs whose costs are measured; each is called in a separate process."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from fedsage.config import load_config
from fedsage.runs.execute import run_config


def costs_of_run(settings: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds, peak memory, bytes and rounds of one run."""
    config = load_config(settings)
    result = run_config(config)
    record, phases = result.record, [line.phase for line in result.history]
    return {
        "cpu": record.cpu_seconds,
        "cpu_by_phase": record.cpu_seconds_by_phase,
        "peak_mb": record.peak_rss_mb,
        "bytes": record.bytes,
        "bytes_full": record.bytes_full,
        "rounds": {phase: phases.count(phase) for phase in record.bytes},
        "neighgen": config.neighgen.model_dump(mode="json"),
    }


def seconds_per_round(
    settings: dict[str, Any], workers: list[int], repeats: int
) -> list[list[float]]:
    """Seconds per round with each number of owners at a time, measured repeatedly."""

    def one(at_a_time: int) -> float:
        config = load_config(settings, {"run": {"workers": at_a_time}})
        lines = run_config(config).history
        return (lines[-1].seconds - lines[0].seconds) / (len(lines) - 1)

    return [[one(at_a_time) for at_a_time in workers] for _ in range(repeats)]


def seconds_per_share(threads: list[int], repeats: int) -> list[list[float]]:
    """Seconds per share of independent work, with one share on each of several threads."""
    torch.set_num_threads(1)
    table = torch.ones(256, 256)

    def share(_: int) -> None:
        for _ in range(2000):
            torch.mm(table, table)

    with ThreadPoolExecutor(
        max(threads), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:

        def one(count: int) -> float:
            start = time.perf_counter()
            list(pool.map(share, range(count)))
            return (time.perf_counter() - start) / count

        return [[one(count) for count in threads] for _ in range(repeats)]
