"""The suites of ``fedsage bench``: what is measured, and compared with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedsage.bench.before_training import partition_suite, startup_suite, synthetic_suite
from fedsage.bench.figure import Figure
from fedsage.bench.gen_suites import matching_suite, neighgen_suite
from fedsage.bench.runs import run_suite
from fedsage.bench.scale import scale_suite
from fedsage.bench.step import step_suite
from fedsage.bench.traffic import bytes_suite

SUITES: dict[str, Callable[..., Iterator[Figure]]] = {  # each takes a number of repeats
    "startup": startup_suite,
    "partition": partition_suite,
    "step": step_suite,
    "synthetic": synthetic_suite,
    "run": run_suite,
    "matching": matching_suite,
    "neighgen": neighgen_suite,
    "bytes": bytes_suite,
    "scale": scale_suite,
}
