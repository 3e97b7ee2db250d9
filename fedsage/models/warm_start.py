"""Weights of an earlier run, fitted to the features and classes of today."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedsage.errors import ConfigError
from fedsage.models.backbone import Shape
from fedsage.models.classifier import NodeClassifier
from fedsage.models.parameters import Parameters
from fedsage.shapes import NodeIds
from fedsage.tables.kinds import kind_of
from fedsage.tables.schema import Schema

Make: TypeAlias = Callable[[int, int], Parameters]  # fresh weights, from d_x and d_y
SHOWN = 5  # names in one line


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where every feature and every class of today stood in the earlier run; -1: nowhere."""

    columns: NodeIds
    classes: NodeIds
    notes: tuple[str, ...] = ()  # what is new and what is gone


def carried_over(old: Parameters, places: Places, make: Make) -> Parameters:
    """Fresh weights, overwritten with the old ones of all features and classes that remain.

    Which axis of a weight belongs to features, and which to classes, is seen from weights for
    one feature or one class more: so this works for every model.
    """
    d_x, d_y = len(places.columns), len(places.classes)
    fresh, wider, more = make(d_x, d_y), make(d_x + 1, d_y), make(d_x, d_y + 1)
    for name, weight in fresh.items():
        new_at, old_at = [], []
        for axis, size in enumerate(weight.shape):
            place: NodeIds = np.arange(size)
            if wider[name].shape[axis] != size:
                place = places.columns
            elif more[name].shape[axis] != size:
                place = places.classes
            kept = place >= 0
            new_at.append(np.flatnonzero(kept))
            old_at.append(place[kept])
        weight[np.ix_(*new_at)] = old[name][np.ix_(*old_at)]
    return fresh


def places_in(
    model: NodeClassifier,
    where: str,
    num_features: int,
    class_names: Sequence[str],
    schema: Schema | None,
) -> Places:
    """Where today's features and classes stood in the run of ``model``, by name.

    Refuses features whose meaning has changed, and tables that have nothing in common.
    """
    notes: list[str] = []
    classes = by_name("classes", model.class_names, class_names, where, notes)
    if model.schema is None or schema is None:
        if num_features != model.shape.num_features:
            raise ConfigError(
                f"{where} was trained on {model.shape.num_features} features, but there are "
                f"{num_features} now, and without schemas nobody knows which ones are new. "
                "Start from a run on tables, or train from scratch."
            )
        return Places(np.arange(num_features), classes, tuple(notes))
    refuse_other_meanings(model.schema, schema, where)
    names = model.schema.width_names, schema.width_names
    columns = by_name("columns of features", *names, where, notes)
    return Places(columns, classes, tuple(notes))


def by_name(
    what: str, before: Sequence[str], now: Sequence[str], where: str, notes: list[str]
) -> NodeIds:
    """The place of each of today's names among the earlier ones, or -1."""
    places = {name: i for i, name in enumerate(before)}
    found = np.array([places.get(name, -1) for name in now], dtype=np.int64)
    if (found < 0).all():
        raise ConfigError(
            f"{where} has none of today's {what}: it has {listed(before)}, now there are "
            f"{listed(now)}. Start from a run on the same kind of data, or train from scratch."
        )
    new = [name for name in now if name not in places]
    gone = [name for name in before if name not in set(now)]
    if new:
        notes.append(f"New {what} since {where}, with fresh weights: {listed(new)}.")
    if gone:
        notes.append(f"Gone {what} since {where}, their weights are dropped: {listed(gone)}.")
    return found


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def refuse_other_meanings(before: Schema, now: Schema, where: str) -> None:
    """Refuse columns of the same name that X holds in another way."""
    earlier = {feature.name: feature for feature in before.columns}
    for feature in now.columns:
        was = earlier.get(feature.name)
        if was is None:
            continue
        for key in ("kind", "scaling", "since", "columns"):
            held, seen = getattr(was, key), getattr(feature, key)
            if held != seen and (key == "kind" or key in kind_of(feature).settings):
                raise ConfigError(
                    f"{where} has '{feature.name}' with {key} = {held!r}, but the schema now "
                    f"says {seen!r}, so its weights mean something else. Give it the earlier "
                    "setting or another name, or train from scratch."
                )


def check_same_model(earlier: Shape, now: Shape, where: str) -> None:
    """Refuse a run whose classifier is built in another way."""
    before, today = earlier.model.model_dump(), now.model.model_dump()
    for key, value in today.items():
        if before[key] != value:
            raise ConfigError(
                f"{where} has another model: model.{key} was {before[key]} and is now {value}. "
                f"Add --set model.{key}={as_setting(before[key])}, or train from scratch."
            )


def as_setting(value: object) -> str:
    """A value as ``--set`` takes it."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
