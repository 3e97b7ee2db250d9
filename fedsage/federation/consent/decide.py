"""Consent: whether an owner takes part in a run, by its policy or by its own decision.

A decision is about what the owner was shown. It names a checksum of the run, all its settings,
the user files and the words that say what leaves; for anything else the owner is asked again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedsage.config import Config, load_config
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.consent.how_often import DAY, LEDGER, entries
from fedsage.federation.consent.policy import PLUS, Policy, as_toml, flat, words_of
from fedsage.files import locked, write_json
from fedsage.registry import is_file

CONSENT = "consent.json"  # in a kit: what is asked, and what was decided
ANY = "any"  # in a list of the policy: whatever the policy allows
PATIENCE = ("deadline", "wait")  # settings of the federation that tell nothing of the data
KEPT = 500  # decisions
LONGEST = 300  # characters of an owner's words


@dataclass(frozen=True, slots=True)
class Terms:
    """What an owner is asked to take part in, and shown."""

    run: str
    settings: Mapping[str, Any]  # as the server gave them
    files: Mapping[str, str]  # checksums of user files, by setting
    leaves: str  # the text of what-leaves.txt

    @property
    def sha256(self) -> str:
        """Of all that is shown."""
        return checksum_of({"run": self.run, **self.shown})

    @property
    def kind(self) -> str:
        """The same for every run that differs only in its name and seed."""
        run = {**self.settings["run"], "seed": 0}
        return checksum_of({**self.shown, "settings": {**self.shown["settings"], "run": run}})

    @property
    def shown(self) -> dict[str, Any]:
        """Everything but the name of the run."""
        patient = self.settings.get("federation", {})
        fed = {key: value for key, value in patient.items() if key not in PATIENCE}
        settings = {**self.settings, "federation": fed}
        return {"settings": settings, "files": dict(self.files), "leaves": self.leaves}


@dataclass(frozen=True, slots=True)
class Decision:
    """What an owner decided on some terms."""

    run: str
    sha256: str
    kind: str
    yes: bool
    always: bool  # also for later runs of this kind
    words: str  # to the coordinator
    time: float


@dataclass(frozen=True, slots=True)
class Asked:
    """Terms that wait for the owner."""

    terms: Terms
    since: float
    why: list[str]  # the policy does not answer by itself
    differs: list[str]  # settings, from those of the last run
    first: bool  # there was no run before: differs from the preset


def checksum_of(value: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def must_ask(
    policy: Policy, config: Config, files: Mapping[str, str], runs: int
) -> Iterator[str]:
    """Why the owner must be asked; nothing if its policy says to take part unasked.

    Args:
        policy: The owner's policy.
        config: The settings of the run, which the policy allows.
        files: Checksums of user files, by setting.
        runs: How many runs there were in the last 24 hours.
    """
    named = words_of(config)
    method = named["methods"][1]
    if method == PLUS:
        method += named["mending"][1]
    words: dict[str, list[str]] = {
        "methods": [] if is_file(method) else [method],
        "presets": [config.run.preset],
        "privacy": [named["privacy"][1]],
        "files": sorted(set(files.values())),
    }
    for key, wanted in words.items():
        rule = f"unasked.{key}"
        if ANY not in policy.rules[rule]:
            missing = [word for word in wanted if word not in policy.rules[rule]]
            yield from (f"'{word}' is not in {policy.why(rule)}" for word in missing)
    if runs >= policy.rules["unasked.runs_a_day"]:
        yield f"runs in the last 24 hours: {runs} {policy.why('unasked.runs_a_day')}"


def decision_on(
    folder: Path, terms: Terms, policy: Policy, config: Config, clock: float | None = None
) -> Decision | None:
    """What the owner decided on these terms; None if it has to be asked, and now is.

    Args:
        folder: Of the kit's own files.
        terms: What is asked; the policy must allow it.
        policy: The owner's policy.
        config: The settings of ``terms``.
        clock: Seconds since 1970; now if None.
    """
    now = time.time() if clock is None else clock
    with locked(folder / CONSENT):
        state = stored(folder)
        known = decisions(state)
        for one in reversed(known):
            if one.sha256 == terms.sha256:
                return one
        counted = [(one["run"], one["time"]) for one in entries(folder / LEDGER)]
        counted += [(one.run, one.time) for one in known if one.yes]
        runs = len({run for run, then in counted if now - then < DAY} - {terms.run})
        why = list(must_ask(policy, config, terms.files, runs))
        always = any(one.always and one.kind == terms.kind for one in known)
        if always and runs < policy.rules["unasked.runs_a_day"]:
            why = []
        if not why:
            made = Decision(terms.run, terms.sha256, terms.kind, True, False, "", now)
            keep(folder, state, made, terms)
            return made
        before = state["asked"] or {}
        same = before.get("sha256") == terms.sha256
        since = before["since"] if same else now
        asked = {"terms": asdict(terms), "sha256": terms.sha256, "since": since, "why": why}
        if not same or before["why"] != why:
            write_json(folder / CONSENT, {**state, "asked": asked})
    return None


def asked_of(folder: Path) -> Asked | None:
    """What waits for the owner's decision."""
    state = stored(folder)
    if state["asked"] is None:
        return None
    terms = Terms(**state["asked"]["terms"])
    last = state["last"]
    usual = load_config(preset=terms.settings["run"]["preset"]).model_dump(mode="json")
    differs = list(differences(last or usual, terms.settings))
    return Asked(terms, state["asked"]["since"], state["asked"]["why"], differs, last is None)


def decide(
    folder: Path, shown: str, yes: bool, because: str = "", always: bool = False
) -> Decision:
    """Record the owner's decision on what it was shown.

    Args:
        folder: Of the kit's own files.
        shown: The checksum of the terms that the owner has seen.
        yes: Whether it takes part.
        because: Words for the coordinator.
        always: Whether later runs that differ only in name and seed need not ask again.
    """
    with locked(folder / CONSENT):
        state = stored(folder)
        if state["asked"] is None:
            raise ConfigError("No run is waiting for your decision.")
        terms = Terms(**state["asked"]["terms"])
        if terms.sha256 != shown:
            raise PrivacyError(
                f"What is asked has changed since you were shown it (run {terms.run}). Nothing "
                "was decided: look at it again."
            )
        said = because.strip()[:LONGEST]
        made = Decision(
            terms.run, terms.sha256, terms.kind, yes, always and yes, said, time.time()
        )
        keep(folder, state, made, terms)
    return made


def keep(folder: Path, state: Mapping[str, Any], made: Decision, terms: Terms) -> None:
    """Store a decision; nothing is asked any more, and the next request is compared with it."""
    known = [*state["decided"], asdict(made)]
    always = [one for one in known[:-KEPT] if one["always"]]
    last = terms.settings if made.yes else state["last"]
    asked = state["asked"] if (state["asked"] or {}).get("sha256") != made.sha256 else None
    now = {"asked": asked, "decided": [*always, *known[-KEPT:]], "last": last}
    write_json(folder / CONSENT, now)


def stored(folder: Path) -> dict[str, Any]:
    """The file of a kit; one that cannot be read counts as no consent."""
    empty: dict[str, Any] = {"asked": None, "decided": [], "last": None}
    file = folder / CONSENT
    if not file.exists():
        return empty
    try:
        found = json.loads(file.read_text())
        return {key: found[key] for key in empty}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{CONSENT} in the owner's kit is damaged, so it is unknown what the owner agreed "
            "to. The owner may move it away."
        ) from None


def decisions(state: Mapping[str, Any]) -> list[Decision]:
    """What was decided so far, oldest first."""
    return [Decision(**one) for one in state["decided"]]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ, as ``section.key: before → now``."""
    old, new = dict(flat(before)), dict(flat(now))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            was, is_now = (as_toml(one[key]) if key in one else "none" for one in (old, new))
            yield f"{key}: {was} → {is_now}"
