"""Settings as a user gives them: a TOML file, or ``section.key=value`` on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from fedsage.errors import ConfigError
from fedsage.layering import Settings, overlaid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> Settings:
    """Settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Check --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from None


def read_assignments(assignments: Iterable[str]) -> Settings:
    """Settings from ``section.key=value`` as on the command line."""
    layers = []
    for text in assignments:
        key, equals, value = text.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot or not name:
            raise ConfigError(
                f"--set takes section.key=value, but got '{text}'. Example: "
                "--set classifier.eta=0.001"
            )
        layers.append({section: {name: parsed(value.strip())}})
    return overlaid(*layers)


def parsed(value: str) -> object:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
