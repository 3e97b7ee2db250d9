"""The default privacy level of a federation: sums are hidden wherever they can be."""

from __future__ import annotations

from collections.abc import Callable

from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.runs.setup import check_hidden, chosen_by_name

ENOUGH = 3  # owners: with two, each can compute the other's part of a sum


def with_level(config: Config, say: Callable[[str], None]) -> Config:
    """The settings with the privacy level filled in; warns about what may surprise."""
    level = config.privacy.level
    if level == "auto":
        why = cannot_hide(config)
        level = "open" if why else "sums"
        if why:
            say(f"The server will see each owner's replies. {why}")
    elif level == "sums" and config.data.owners < ENOUGH:
        say(
            "With two owners, each can subtract its own part from a sum and gets the other's: "
            "sums are hidden only from the server, not from the other owner."
        )
    return at_level(config, level)


def at_level(config: Config, level: str) -> Config:
    """The settings with another privacy level."""
    privacy = config.privacy.model_copy(update={"level": level})
    return config.model_copy(update={"privacy": privacy})


def cannot_hide(config: Config) -> str | None:
    """Why sums are not hidden by default in a run, or None."""
    if config.data.owners < ENOUGH:
        return "With two owners, hidden sums hide nothing from the other owner."
    _, way, _ = chosen_by_name(config)
    try:
        check_hidden(at_level(config, "sums"), way)
    except ConfigError as error:
        return str(error)
    return None
