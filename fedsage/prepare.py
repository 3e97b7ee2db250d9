"""What all methods on one seed have in common: owners, splits, the first weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from fedsage.config import Config
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import ConfigError, DataError, PrivacyError
from fedsage.graph.attach import mend, true_neighbors
from fedsage.graph.graph import Graph
from fedsage.graph.impair import num_hidden
from fedsage.graph.partition import Partition, label_counts
from fedsage.graph.split import Split, split_nodes
from fedsage.methods import (
    Mending,
    by_classes,
    by_copies,
    by_neighgen,
    by_nothing,
    by_shared_neighgen,
    by_subspace,
)
from fedsage.models.backbone import Shape, new_model
from fedsage.models.neighgen import NeighGen
from fedsage.models.parameters import parameters_of
from fedsage.models.subspace import Basis, random_basis
from fedsage.protocol.messages import Classifier, Subspace
from fedsage.protocol.owner import DataOwner
from fedsage.rng import generator

SUBSPACE_STEPS = 4  # of the iteration: more change no accuracy


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What server and owners each make of the same settings; nobody's data is in it."""

    config: Config
    shape: Shape
    phi: Classifier
    nodes: tuple[int, ...]  # of each owner

    @property
    def seed(self) -> int:
        """All draws come from it."""
        return self.config.run.seed

    def alone(self) -> Config:
        """The settings of an owner whose optimizer's state nobody averages."""
        classifier = self.config.classifier.model_copy(update={"moments": "own"})
        return self.config.model_copy(update={"classifier": classifier})


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Plan):
    """What all methods on one seed have in common: a plan, owners, splits."""

    owners: Partition
    graph: Graph | None
    splits: list[Split]


def prepare(config: Config, owners: Partition, graph: Graph | None) -> Setting:
    """Splits and first weights; they depend on the seed and never on the method."""
    seed, data = config.run.seed, config.data
    given = owners.splits or (None,) * owners.num_owners
    splits = [
        own or split_nodes(subgraph, data.train, data.val, seed, i)
        for i, (subgraph, own) in enumerate(zip(owners.subgraphs, given, strict=True))
    ]
    check_whole(owners, graph)
    check_classes(owners, splits)
    first = owners.subgraphs[0]
    sizes = [subgraph.num_nodes for subgraph in owners.subgraphs]
    plan = plan_of(config, first.num_features, first.num_classes, sizes)
    shared = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    return Setting(**shared, owners=owners, graph=graph, splits=splits)


def plan_of(config: Config, num_features: int, num_classes: int, nodes: Sequence[int]) -> Plan:
    """Settings, shapes and the first φ, which depend on no data but its size."""
    check_device(config.run.device)
    shape = Shape(num_features, num_classes, config.model)
    first = new_model(shape, generator(config.run.seed, "phi"))
    return Plan(config, shape, Classifier(parameters_of(first), {}), tuple(nodes))


def blank_neighgen(plan: Plan) -> NeighGen:
    """A NeighGen as it is in this run, for its shapes alone."""
    return new_neighgen(plan, generator(0, "shapes alone"))


def new_neighgen(plan: Plan, stream: np.random.Generator) -> NeighGen:
    """The NeighGen of this run with weights from ``stream``."""
    return NeighGen(plan.shape.num_features, plan.config.neighgen, stream)


def exchange_bytes(plan: Plan, rounds_gen: int) -> int:
    """About how much NeighGen's exchange carries: it grows with the square of owners."""
    owners = len(plan.nodes)
    gen = plan.config.neighgen
    partners = min(gen.partners or owners, owners) - (0 if gen.partners else 1)
    hg = parameters_of(blank_neighgen(plan).hg)
    weights = sum(4 * weight.numel() for weight in hg.values())
    offer = weights + 4 * gen.batch_size * gen.widths[-1]
    each = offer + partners * offer + partners * weights + weights
    return rounds_gen * owners * each


def way_of_mending(method: str, how: str) -> str:
    """Where ``method`` takes neighbors from; ``how`` is what the settings say of fedsage+."""
    fixed = {
        "fedsage+": how,
        "locsage+": "neighgen",
        "oracle": "oracle",
        "fedsage+neighgen": "neighgen",
        "fedsage+copy": "copy",
        "fedsage+classes": "classes",
        "fedsage+shared": "shared",
        "fedsage+subspace": "subspace",
    }
    return fixed.get(method, "none")


def mending_of(way: str, plan: Plan, rounds_gen: int) -> Mending:
    """The procedure by which owners mend their graphs."""
    if way == "shared":
        theta = parameters_of(new_neighgen(plan, generator(plan.seed, "theta")))
        return by_shared_neighgen(rounds_gen, theta)
    if way == "subspace":
        return by_subspace(Subspace(first_basis(plan)), SUBSPACE_STEPS)
    ways = {
        "neighgen": by_neighgen(rounds_gen, plan.config.neighgen.partners, plan.seed),
        "copy": by_copies,
        "classes": by_classes,
        "oracle": by_nothing,  # mended before it starts: see data_owners
        "none": by_nothing,
    }
    return ways[way]


def check_generator(plan: Plan, way: str) -> None:
    """Refuse, before anything is trained, what owners would refuse in the first round."""
    gen, model = plan.config.neighgen, plan.config.model
    if way not in ("neighgen", "shared"):
        return
    if len(gen.widths) != len(model.widths):
        raise ConfigError(
            f"neighgen.widths has {len(gen.widths)} layers and model.widths "
            f"{len(model.widths)}, but both work on the same neighborhoods. Give as "
            "many."
        )
    for i, nodes in enumerate(plan.nodes):
        hidden = num_hidden(nodes, gen.hide_ratio)
        batch = min(gen.batch_size, nodes - hidden)
        if way == "neighgen" and len(plan.nodes) > 1 and batch < gen.min_batch:
            raise PrivacyError(
                f"Owner {i} has {nodes} nodes, of which {hidden} are hidden, and "
                f"neighgen.batch_size is {gen.batch_size}: a batch of {batch} is below "
                f"neighgen.min_batch {gen.min_batch}, where gradients show single rows of "
                "features. Take a larger batch, fewer owners, or another way of mending."
            )


def first_basis(plan: Plan) -> Basis:
    """Where the search for the common subspace starts.

    Its rank is as set, but such that the columns of all answers together are at most half
    the nodes of the smallest owner (see ``DataOwner.sketch_features``).
    """
    num_features = plan.shape.num_features
    rank = max(
        1, min(plan.config.mend.rank, min(plan.nodes) // (2 * SUBSPACE_STEPS), num_features)
    )
    return random_basis(num_features, rank, generator(plan.seed, "subspace"))


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ConfigError(
            f"Device '{device}' cannot be used here ({first}). Take --set run.device=cpu."
        ) from None


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
        raise DataError(
            f"Owner {idle[0]} has {owners.subgraphs[idle[0]].num_nodes} nodes but none of them "
            "is labelled, so it has nothing to train on. Label some of them, ask for fewer "
            "owners, or take --partition random."
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


def data_owners(
    setting: Setting,
    way: str = "none",
    alone: bool = False,
    kind: type[DataOwner] = DataOwner,
) -> list[DataOwner]:
    """The owners, with what they need to mend their graphs that ``way``.

    ``alone`` they keep their optimizer's state, for nobody averages it. ``kind`` is a user's
    own class of owners.
    """
    config = setting.alone() if alone else setting.config
    gen = way in ("neighgen", "shared")
    subgraphs, splits = setting.owners.subgraphs, setting.splits
    mended: list[Graph | None] = [None] * len(subgraphs)
    if way == "oracle":
        missing = true_neighbors(whole_graph(way, setting), setting.owners.nodes)
        mended = [mend(*pair) for pair in zip(subgraphs, missing, strict=True)]
    return [
        kind(i, graph, split, setting.shape, config, mended_graph, gen)
        for i, (graph, split, mended_graph) in enumerate(
            zip(subgraphs, splits, mended, strict=True)
        )
    ]


def whole_graph(method: str, setting: Setting) -> Graph:
    """G, for the methods that exist in simulations alone."""
    if setting.graph is None:
        raise ConfigError(
            f"{method} needs the whole graph, but none was given. Pass evaluate_on=graph; "
            "where nobody holds it, take fedsage."
        )
    return setting.graph


def whole_graph_engine(setting: Setting, checkpoint: Path | None = None) -> InProcessEngine:
    """GlobSage's one owner: G, with the union of all owners' splits."""
    graph = whole_graph("globsage", setting)
    parts = list(zip(setting.owners.nodes, setting.splits, strict=True))
    split = Split(
        train=np.sort(np.concatenate([nodes[one.train] for nodes, one in parts])),
        val=np.sort(np.concatenate([nodes[one.val] for nodes, one in parts])),
        test=np.sort(np.concatenate([nodes[one.test] for nodes, one in parts])),
    )
    owner = DataOwner(0, graph, split, setting.shape, setting.alone())
    return InProcessEngine([owner], folder=checkpoint)
