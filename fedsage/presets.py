"""What presets set, what settings were once called, and how settings are laid in layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from fedsage.errors import ConfigError, nearest

Preset: TypeAlias = Literal["paper", "best"]
RENAMED = {"traffic.patience": "classifier.patience"}  # old names are still understood

# What a private run sets over its preset: a classifier of features alone, and nothing to mend.
# Chosen on validation nodes, seeds 100 and 101, of PubMed and MSAcademic at ε = 1 and 4.
PRIVATE: Settings = {
    "model": {
        "backbone": "linear", "widths": [2048], "steps": 5, "teleport": 0.25, "dropout": 0.0,
    },
    "classifier": {"rounds_c": 40, "fanouts": [5], "selection": "last"},
    "mend": {"how": "none", "queries": "plain"},
    "evaluation": {"inference": "full"},
    "data": {"features": "raw"},
}  # fmt: skip

# The defaults in ``config/`` are the paper's settings.
PRESETS: dict[Preset, Settings] = {
    "paper": {},
    "best": {
        "data": {"features": "auto"},
        "model": {"head": "relu", "dropout": 0.3},
        "classifier": {
            "eta": 3e-3,
            "eta_whole": 1e-3,
            "cooling": 0.5,
            "weight_decay": 5e-4,
            "small_epochs": 4,
            "weighting": "nodes",
            "selection": "validation",
        },
        "mend": {"how": "auto", "mix": "rounds", "queries": "auto"},
        "neighgen": {
            "fresh": True,
            "local_steps": 3,
            "eta": 3e-3,
            "counts": "draw",
            "at_least": 1,
            "keep_words": True,
            "match_norms": True,
        },
        "traffic": {"how": "low-rank"},
        "evaluation": {"inference": "full"},
    },
}


Settings: TypeAlias = Mapping[str, Any]  # nested as in a TOML file, before it is checked


def overlaid(*layers: Settings) -> dict[str, Any]:
    """Nested settings, later layers over earlier ones."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below: Any = merged.get(key, {} if isinstance(value, Mapping) else value)
            if isinstance(below, Mapping) != isinstance(value, Mapping):
                raise ConfigError(
                    f"'{key}' is both a section and a value ({below!r} and {value!r}). Write "
                    f"[{key}] and its keys below it, or --set {key}.name=value."
                )
            merged[key] = overlaid(below, value) if isinstance(value, Mapping) else value
    return merged


def renamed(layer: Settings, names: Mapping[str, str]) -> Settings:
    """The same settings, with new names in place of old ones."""
    for old, new in names.items():
        (above, key), (home, name) = old.split("."), new.split(".")
        section = layer.get(above)
        if isinstance(section, Mapping) and key in section:
            rest = {one: value for one, value in section.items() if one != key}
            layer = overlaid({home: {name: section[key]}}, {**layer, above: rest})
    return layer


def explained(error: Mapping[str, Any], config: type[BaseModel]) -> str:
    """What is wrong with a setting, what was seen, what to do: in one line."""
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        section = config.model_fields.get(path[0])
        inside = len(path) > 1 and section is not None and section.annotation is not None
        fields = section.annotation.model_fields if inside else config.model_fields  # type: ignore[union-attr]
        return f"Unknown key '{key}'.{nearest(path[-1], fields)}"
    seen = error["input"]
    wanted = error["msg"][0].lower() + error["msg"][1:]
    return f"Setting '{key}' is {seen!r}: {wanted}. 'fedsage settings' shows all of them."
