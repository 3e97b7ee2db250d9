"""A user's own files in a federation: no code is sent, every party allows its own copy.

A setting may name a Python file (a way of mending, a backbone, a rule, a method). The parties
agree on its checksum; each runs the copy in its own kit with that checksum, and refuses if
there is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from fedsage.config import Config
from fedsage.errors import ConfigError, PrivacyError
from fedsage.presets import overlaid
from fedsage.registry import checksum, is_file

ALLOWED = "allowed"  # the folder in a kit
PREFIX = "fedsage+"  # may precede a file in run.method


def files_of(config: Config) -> dict[str, str]:
    """The files that settings name, by setting."""
    return {
        f"{section}.{key}": value.removeprefix(PREFIX)
        for section, values in config.model_dump().items()
        for key, value in values.items()
        if isinstance(value, str) and is_file(value)
    }


def checksums_of(config: Config) -> dict[str, str]:
    """The checksums of those files, by setting."""
    return {setting: checksum(path) for setting, path in files_of(config).items()}


def allow(file: Path, folder: Path) -> Path:
    """Copy a file into the folder of files that runs may use here."""
    if not is_file(file.name) or not file.is_file():
        raise ConfigError(f"{file} is not a Python file. Name the .py file to allow.")
    (folder / ALLOWED).mkdir(parents=True, exist_ok=True)
    copy = folder / ALLOWED / f"{checksum(str(file))[:12]}-{file.name}"  # beside earlier ones
    return Path(shutil.copyfile(file, copy))


def with_own_copies(config: Config, wanted: Mapping[str, str], folder: Path) -> Config:
    """The same settings, with this party's copies of the files that they name."""
    here = {checksum(str(path)): path for path in (folder / ALLOWED).glob("*.py")}
    for setting, path in files_of(config).items():
        seen = wanted.get(setting, "")
        if seen not in here:
            raise PrivacyError(
                f"The run uses {Path(path).name} (SHA-256 {seen[:12]}…) for {setting}, which "
                "is not allowed here. Read the file, then allow it: 'fedsage federation allow "
                f"KIT {Path(path).name}'."
            )
        section, _, key = setting.partition(".")
        before = getattr(getattr(config, section), key)
        prefix = PREFIX if before.startswith(PREFIX) else ""
        changed = {section: {key: f"{prefix}{here[seen]}"}}
        config = Config.model_validate(overlaid(config.model_dump(), changed))
    return config
