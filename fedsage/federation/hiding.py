"""Which privacy a federation has if nobody says: sums are hidden wherever they can be."""

from __future__ import annotations

from collections.abc import Callable

from fedsage.config import Config, PrivacyConfig
from fedsage.errors import ConfigError
from fedsage.runs.setup import check_hidden, chosen_by_name

ENOUGH = 3  # owners: of two, each knows the other's part of a sum


def with_level(config: Config, say: Callable[[str], None]) -> Config:
    """The same with the level of privacy that it will have; tells what may surprise."""
    level = config.privacy.level
    if level == "auto":
        why = cannot_hide(config)
        level = "open" if why else "sums"
        if why:
            say(f"The server will see every owner's replies by themselves. {why}")
    elif level == "sums" and config.data.owners < ENOUGH:
        say(
            "With two owners, each can take its own part off a sum and has the other's: sums "
            "hide nothing from the other owner, only from the server."
        )
    return config.model_copy(update={"privacy": PrivacyConfig(level=level)})


def cannot_hide(config: Config) -> str | None:
    """Why sums are not hidden in a run, if nobody asks for it."""
    if config.data.owners < ENOUGH:
        return "With two owners, sums hide nothing from the other one."
    _, way, _ = chosen_by_name(config)
    try:
        check_hidden(config, way)
    except ConfigError as error:
        return str(error)
    return None
