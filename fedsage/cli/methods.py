"""``fedsage methods``: all that can be chosen by name, each with its first sentence."""

from __future__ import annotations

from typing import Any

from fedsage.cli import options, output
from fedsage.registry import Registry


def methods(json: options.Json = False) -> None:
    """List all methods, ways of mending, backbones, aggregation rules and trackers."""
    found = choices()
    if json:
        output.print_json(found)
        return
    for kind, entries in found.items():
        output.print_words(kind, entries)


def choices() -> dict[str, dict[str, str]]:
    """By kind and name, the first sentence about each."""
    from fedsage.mending.way import WAYS
    from fedsage.methods import all_methods
    from fedsage.models.backbone import BACKBONES
    from fedsage.protocol.server import RULES
    from fedsage.runs.track import TRACKERS

    registries: dict[str, Registry[Any]] = {
        "ways of mending": WAYS,
        "backbones": BACKBONES,
        "aggregation rules": RULES,
        "trackers": TRACKERS,
    }
    return {"methods": all_methods()} | {
        kind: {name: entry.about for name, entry in registry.ours().items()}
        for kind, registry in registries.items()
    }
