"""Protocols of the field, as data: how owners and nodes are split, and what papers print."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fedsage.arena.contest import Ring
from fedsage.errors import ConfigError, nearest


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a paper compares methods."""

    name: str
    about: str
    note: str
    rings: tuple[Ring, ...]
    printed: tuple[Mapping[str, Any], ...]

    def value(self, ring: Ring, method: str) -> dict[str, Any] | None:
        """What is printed for a method on that ring, and where."""
        for one in self.printed:
            where = one["dataset"], one["partition"], one["owners"]
            if one["method"] == method and where == (ring.dataset, ring.partition, ring.owners):
                return {key: one[key] for key in ("low", "high", "from")}
        return None


def protocols() -> dict[str, Protocol]:
    """All of them, by name."""
    text = (files("fedsage.arena") / "protocols.json").read_text(encoding="utf-8")
    return {name: protocol_of(name, held) for name, held in json.loads(text).items()}


def protocol_of(name: str, held: Mapping[str, Any]) -> Protocol:
    """A protocol from its JSON object."""
    rings = tuple(
        Ring(dataset, owners, partition, held["split"])
        for dataset in held["datasets"]
        for partition in held["partition"]
        for owners in held["owners"]
    )
    return Protocol(name, held["about"], held["note"], rings, tuple(held["printed"]))


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    known = protocols()
    if name not in known:
        raise ConfigError(f"Unknown protocol '{name}'.{nearest(name, known)}")
    return known[name]


def nothing_printed(ring: Ring, method: str) -> None:
    """For contests without a protocol."""


Printed = Callable[[Ring, str], Any]
