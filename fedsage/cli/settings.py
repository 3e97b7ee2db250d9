"""Settings as a user gives them, and ``fedsage settings``, which shows all as TOML."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from fedsage.cli import options
from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.presets import Settings, overlaid


def settings(
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
) -> None:
    """Print every setting with its value and meaning, as a TOML file for --config."""
    chosen = options.config_from(preset=preset, config=config, assignments=assignments)
    print("\n".join(toml_lines(chosen)))


def toml_lines(config: Config) -> list[str]:
    """The settings as TOML, each with what it means."""
    lines = []
    for name in Config.model_fields:
        section = getattr(config, name)
        lines += ["", f"[{name}]  # {(section.__doc__ or '').strip().splitlines()[0]}"]
        for key, field in type(section).model_fields.items():
            value = json.dumps(getattr(section, key))
            comment = f"  # {field.description}" if field.description else ""
            lines.append(f"{key} = {value}{comment}")
    return lines[1:]


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
