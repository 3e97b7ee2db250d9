"""Everything that is wrong with tables, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedsage.errors import DataErrors


@contextmanager
def every_problem() -> Iterator[None]:
    """List all problems of tables, where other commands name the first; exit code 2."""
    try:
        yield
    except DataErrors as errors:
        print(f"Error: {errors}", file=sys.stderr)
        raise typer.Exit(2) from None
