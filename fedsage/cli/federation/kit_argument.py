"""Kits as arguments of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

KitFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="KIT", help="folder of a party's startup kit")
]
