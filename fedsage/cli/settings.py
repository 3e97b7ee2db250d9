"""``fedsage settings``: every setting with its value and meaning, as TOML for ``--config``."""

from __future__ import annotations

import json

from fedsage.cli import options
from fedsage.config import Config


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
