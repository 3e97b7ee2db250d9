"""How often an owner was asked: a small file in its kit counts runs and rounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.consent.policy import Policy
from fedsage.files import locked, write_json

LEDGER = "ledger.json"
DAY, MONTH = 86400.0, 30 * 86400.0  # seconds


def enter(
    policy: Policy,
    folder: Path,
    run: str,
    rounds: int,
    goes_on: bool,
    clock: Callable[[], float] = time.time,
) -> None:
    """Count a run before it starts; refuses one beyond what the policy allows.

    Args:
        policy: The owner's policy.
        folder: Where the ledger is.
        run: The name of the run.
        rounds: How many it may take; counted when it is agreed to.
        goes_on: Whether it was agreed to before and stopped: then it is not a new run.
        clock: Seconds since 1970.
    """
    with locked(folder / LEDGER):
        known, now = entries(folder / LEDGER), clock()
        before = [one for one in known if one["run"] == run] if goes_on else []
        new: dict[str, Any] = {"run": run, "time": now, "rounds": rounds, "starts": 0}
        one = before[-1] if before else new
        one["starts"] += 1
        kept = [*known, *([] if before else [one])]
        if why := too_often(policy, kept, one, now):
            raise PrivacyError(f"The policy does not allow this run: {why}. Ask the owner.")
        write_json(folder / LEDGER, {"runs": [e for e in kept if now - e["time"] < 2 * MONTH]})


def too_often(
    policy: Policy, known: list[dict[str, Any]], run: dict[str, Any], now: float
) -> str | None:
    """Which count exceeds what the policy allows, or None."""
    rounds = sum(one["rounds"] for one in known if now - one["time"] < MONTH)
    counts = {
        "runs_a_day": ("runs in 24 hours", sum(now - one["time"] < DAY for one in known)),
        "rounds_a_month": ("rounds in 30 days", rounds),
        "starts_of_a_run": ("starts of this run", run["starts"]),
    }
    new = ("runs_a_day", "rounds_a_month") if run["starts"] == 1 else ()
    for key in (*new, "starts_of_a_run"):
        what, count = counts[key]
        if count > policy.rules[f"most.{key}"]:
            return f"that would make {count} {what} {policy.why(f'most.{key}')}"
    return None


def entries(path: Path) -> list[dict[str, Any]]:
    """What was counted so far; an unreadable ledger counts as no permission."""
    if not path.exists():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{LEDGER} in the owner's kit is damaged, so runs cannot be counted. The owner may "
            "move it away."
        ) from None
    return found
