"""What a run refuses before it begins, and what a method or a private run needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedsage.config import Config, MethodConfig, Section, TrafficConfig
from fedsage.errors import ConfigError, DataError, nearest
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, label_counts
from fedsage.graph.split import Split
from fedsage.mending.way import Way
from fedsage.methods import Method, fedsage, privately
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import PrivateOwner
from fedsage.protocol.procedures import in_sums
from fedsage.readable import counted
from fedsage.tables.kinds import kind_of
from fedsage.tables.schema import Schema


def fitting(config: Config, method: Method) -> Config:
    """The same with all of the method's own settings, and messages as it needs them."""
    check_options(config, method)
    changed: dict[str, Section] = {}
    if method.options:
        values = dict(method.options) | config.method.values
        changed["method"] = MethodConfig.model_validate(values)
    if method.sees_models:
        if in_sums(config):
            raise ConfigError(
                f"With {method.name} the server works with each owner's model, which --privacy "
                "sums hides from it. Use --privacy open."
            )
        changed["traffic"] = TrafficConfig()
    return config.model_copy(update=changed)


def check_options(config: Config, method: Method) -> None:
    """Refuse settings that the method does not have."""
    for name in config.method.values:
        if name not in method.options:
            known = nearest(name, method.options) if method.options else " It has none."
            raise ConfigError(f"{method.name} has no setting 'method.{name}'.{known}")


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ConfigError(
            f"Device '{device}' cannot be used here ({first}). Use --set run.device=cpu."
        ) from None


def why_not_compiled(config: Config, owners: Partition) -> str:
    """What compiled steps know nothing of: weights of classes or of links; empty if none."""
    if config.classifier.class_weights != "none":
        return f"classifier.class_weights={config.classifier.class_weights}"
    weighted = any(graph.weights is not None for graph in owners.subgraphs)
    return "weights of links" if weighted else ""


def check_kernel(config: Config, owners: Partition) -> None:
    """Refuse weights with compiled steps, which know none."""
    if config.run.kernel == "fused" and (reason := why_not_compiled(config, owners)):
        raise ConfigError(
            f"run.kernel is 'fused', but that kernel does not support {reason}. Use "
            "run.kernel=auto or run.kernel=torch."
        )


def check_whole_is_there(method: Method, way: Way, there: bool) -> None:
    """Refuse a method that needs the whole graph where nobody holds it."""
    if not there and (method.topology == "whole" or way.truth):
        raise ConfigError(
            f"{method.name} needs the whole graph, and here there are only the owners' parts. "
            "Use fedsage or fedsage+; in Python, evaluate_on=graph gives the whole graph."
        )


def check_whole(owners: Partition, graph: Graph | None) -> None:
    """Refuse a whole graph that the owners' subgraphs were not cut from."""
    if graph is None:
        return
    nodes = sum(len(ids) for ids in owners.nodes)
    pairs = zip(owners.subgraphs, owners.nodes, strict=True)
    if nodes != graph.num_nodes or any((part.y != graph.y[ids]).any() for part, ids in pairs):
        raise DataError(
            f"evaluate_on is not the graph that was partitioned ({graph.num_nodes} nodes, the "
            f"owners have {nodes}). Pass the graph that fedsage.partition was given."
        )


def check_classes(owners: Partition, splits: Sequence[Split]) -> None:
    """Refuse a class that nobody trains on, and an owner who trains on nothing."""
    pairs = list(zip(owners.subgraphs, splits, strict=True))
    names = owners.subgraphs[0].class_names
    if len(names) < 2:
        raise DataError(
            f"The graph has {len(names)} classes; a classifier needs two. Check the labels."
        )
    idle = [i for i, split in enumerate(splits) if not len(split.train)]
    if idle:
        nodes, lacks = owners.nodes[idle[0]], "for training" if owners.splits else "labelled"
        raise DataError(
            f"Owner {idle[0]} has {counted(len(nodes), 'node')}, but none of them is {lacks}, "
            "so it has nothing to train on. Label some of them, ask for fewer owners, or take "
            "--partition random."
        )
    trained = np.bincount(
        np.concatenate([graph.y[split.train] for graph, split in pairs]),
        minlength=len(names),
    )
    missing = np.flatnonzero(trained == 0)
    if len(missing):
        count = int(sum(label_counts(graph)[missing[0]] for graph in owners.subgraphs))
        raise DataError(
            f"Class '{names[missing[0]]}' has no training node ({count} nodes in all). Drop "
            "the class, label more nodes, or raise data.train."
        )


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


def check_private_tables(schema: Schema | None) -> None:
    """Refuse nodes that two owners hold, and columns whose scale is made of all nodes.

    Such a node has two records, and the noise hides one; a scale no noise covers.
    """
    if schema and schema.shared == "same":
        raise ConfigError(
            'The schema says shared = "same": a node that two owners hold would be summed '
            "twice, but --privacy private hides what is summed once. Use --privacy sums, or "
            "let one owner hold each node."
        )
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
            "have it. Use fedsage or fedsage+ without a way of mending, or --privacy sums."
        )
    wanted = {
        "model.backbone": (config.model.backbone, "linear"),
        "classifier.class_weights": (config.classifier.class_weights, "none"),
        "classifier.aggregate": (config.classifier.aggregate, "mean"),
        "classifier.self_training": (config.classifier.self_training, 0),
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
