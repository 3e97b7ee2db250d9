"""How long a folder of large tables takes to be read, checked and made a graph.

    python benchmarks/tables.py --rows 1000000 --columns 10

Prints one JSON object: seconds by the clock and of the CPU for CSV and parquet.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array

from fedsage.data.load import load
from fedsage.rng import generator
from fedsage.tables.schema import Feature, Schema
from fedsage.tables.tables import Tables
from fedsage.tables.write import Format, write_tables


def made_up(rows: int, columns: int) -> Tables:
    """Random numbers with all their digits, a class each, two links a node."""
    draws = generator(0, "tables")
    return Tables(
        schema=Schema(
            tuple(Feature(f"f{i}", "number") for i in range(columns)), ("a", "b", "c")
        ),
        ids=tuple(f"node-{i}" for i in range(rows)),
        numbers=draws.normal(size=(rows, columns)),
        codes=np.zeros((rows, 0), dtype=np.int64),
        sparse=csr_array((rows, 0)),
        y=draws.integers(-1, 3, rows),
        links=draws.integers(rows, size=(2, 2 * rows)),
        split=None,
    )


def seconds_to_load(tables: Tables, format: Format) -> dict[str, float]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(tables, folder, format)
        num_bytes = sum(path.stat().st_size for path in folder.iterdir())
        clock, cpu = time.perf_counter(), time.process_time()
        load(name)
        return {
            "seconds": round(time.perf_counter() - clock, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "megabytes": round(num_bytes / 1e6),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=10)
    arguments = parser.parse_args()
    tables = made_up(arguments.rows, arguments.columns)
    found = {format: seconds_to_load(tables, format) for format in ("csv", "parquet")}
    print(json.dumps(vars(arguments) | found, indent=2))


if __name__ == "__main__":
    main()
