"""What a private run is made of, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

from fedsage.config import Config
from fedsage.errors import ConfigError
from fedsage.mending.way import Way
from fedsage.methods import Method, fedsage, privately
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import PrivateOwner
from fedsage.tables.kinds import kind_of
from fedsage.tables.schema import Schema


def as_private(method: Method) -> Method:
    """The method with private training in place of its own; refuses what has none."""
    if method.topology != "federated" or not (
        method.train in (fedsage, privately) and method.owner in (DataOwner, PrivateOwner)
    ):
        raise ConfigError(
            f"{method.name} cannot be trained with --privacy private. Use fedsage or fedsage+, "
            "or --privacy open."
        )
    return replace(method, train=privately, owner=PrivateOwner)


def check_columns(schema: Schema | None) -> None:
    """Refuse columns whose scale is made of all nodes: no noise covers it."""
    held = schema.held_as("numbers") if schema else ()
    if names := [one.name for one in held if kind_of(one).needs_scale(one)]:
        few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        raise ConfigError(
            f"Columns {few} are scaled by their mean over all nodes, which no noise covers. "
            "Give each a range that everybody may know, e.g. range = [0, 120] (with dates, two "
            'days; yes and no need missing = "refused"), make it a category, or use --privacy '
            "sums."
        )


def check_private(config: Config, way: Way) -> None:
    """Refuse what would tell more than noisy sums, or trains on more than a node's own row."""
    if way.asks:
        raise ConfigError(
            f"Mending by '{way.name}' tells what no noise covers, so --privacy private cannot "
            "have it. Use fedsage or fedsage+ without a way of mending."
        )
    wanted = {
        "model.backbone": (config.model.backbone, "linear"),
        "classifier.class_weights": (config.classifier.class_weights, "none"),
        "classifier.aggregate": (config.classifier.aggregate, "mean"),
        "data.features": (config.data.features, "raw"),
        "run.start_from": (config.run.start_from, ""),
        "evaluation.inference": (config.evaluation.inference, "full"),
    }
    for setting, (found, needed) in wanted.items():
        if found != needed:
            raise ConfigError(
                f"{setting} is '{found}', but --privacy private needs '{needed}'. Leave the "
                "setting out."
            )
