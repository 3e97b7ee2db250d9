"""Settings in layers, one over the other, and what is wrong with them in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from fedsage.errors import ConfigError, nearest

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
