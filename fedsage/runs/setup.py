"""What all methods on one seed have in common: owners, splits, the first weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsage.config import Config, PrivacyConfig, TrafficConfig
from fedsage.errors import ConfigError
from fedsage.graph.feature_forms import RAW, FeatureForm
from fedsage.graph.graph import Graph
from fedsage.graph.known_links import known_links
from fedsage.graph.mend import mend
from fedsage.graph.partition import Partition, with_splits
from fedsage.graph.split import Split
from fedsage.graph.stress import stressed
from fedsage.mending.way import WAYS, Way
from fedsage.methods import Method, Topology, find_method
from fedsage.models.backbone import BACKBONES
from fedsage.protocol.changes.owner import local_change_c
from fedsage.protocol.class_weights import count_classes
from fedsage.protocol.measuring import count_answers
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.private import noisy_gradient
from fedsage.protocol.procedures import Sealed, in_full, in_private, in_sums, procedures_in
from fedsage.protocol.server import RULES, Rule
from fedsage.rng import with_secret
from fedsage.runs.checks import (
    as_private,
    check_classes,
    check_device,
    check_kernel,
    check_options,
    check_private,
    check_private_tables,
    check_whole,
    check_whole_is_there,
    fitting,
)
from fedsage.runs.earlier_run import begun_with

TRAINING = procedures_in(
    DataOwner.__module__,
    local_change_c.module,
    count_answers.module,
    count_classes.module,
    noisy_gradient.module,
)


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """A run before its first round: the plan, and what one process holds of everybody."""

    config: Config
    method: Method
    way: Way  # of mending
    rule: Rule  # by which one classifier is made of many
    plan: Plan
    owners: Partition
    graph: Graph | None
    splits: list[Split]
    seeds: list[int]  # that owners draw from
    notes: tuple[str, ...] = ()  # what has changed since the run that it begins with
    form: FeatureForm = RAW  # that all features have


def prepare(
    config: Config,
    owners: Partition,
    graph: Graph | None,
    method: Method | None = None,
    rule: Rule | None = None,
    secrets: Sequence[str] = (),
    form: FeatureForm = RAW,
) -> Setup:
    """Splits and first weights; they depend on the seed and never on the method.

    ``method`` and ``rule`` stand in for those that ``config`` names. ``secrets`` are what
    owners draw by beside the seed, as they do in a federation. ``form`` is that of features.
    """
    seed, data = config.run.seed, config.data
    chosen, way, by_name = chosen_by_name(config, method)
    owners = with_splits(owners, data.split)
    seeds = own_seeds(seed, secrets, owners.num_owners)
    by_id = in_private(config) and owners.how == "folders"  # as between machines
    splits = [
        owners.split_of(i, data.train, data.val, seeds[i], by_id)
        for i in range(owners.num_owners)
    ]
    if in_private(config) and owners.tables:
        check_private_tables(owners.tables[0])
    check_device(config.run.device)
    check_kernel(config, owners)
    check_whole(owners, graph)
    if data.stressed:
        if graph is None:
            raise ConfigError(
                "data.missing_features, missing_links, few_labels and noisy_labels need the "
                "whole graph, but none was given. Pass evaluate_on=graph."
            )
        graph, owners, splits = stressed(graph, owners, splits, data, seed)
    check_classes(owners, splits)
    check_whole_is_there(chosen, way, graph is not None)
    first = owners.subgraphs[0]
    held = [graph] if graph and chosen.topology == "whole" else owners.subgraphs
    sizes = [one.num_nodes for one in held]
    agreed = config if chosen.topology == "federated" else alone(config, chosen.topology)
    plan = plan_of(agreed, chosen, way, first.num_features, first.num_classes, sizes)
    way.check(plan)
    notes: tuple[str, ...] = ()
    if config.run.start_from:
        plan, splits, notes = begun_with(config.run.start_from, plan, way, owners, splits, form)
        check_classes(owners, splits)
    rule = rule or by_name
    return Setup(config, chosen, way, rule, plan, owners, graph, splits, seeds, notes, form)


def own_seeds(seed: int, secrets: Sequence[str], owners: int) -> list[int]:
    """What each owner draws from: the seed of the run, and its secret if it has one."""
    if secrets and len(secrets) != owners:
        raise ConfigError(f"{len(secrets)} secrets for {owners} owners. Give one for each.")
    return [with_secret(seed, secret) for secret in secrets or [""] * owners]


def alone(config: Config, topology: Topology) -> Config:
    """The same for owners who train by themselves: nothing is averaged, nothing travels.

    The one owner of the whole graph takes as many steps as all others together, so that it may
    have a learning rate of its own.
    """
    how = config.classifier
    eta = how.eta_whole if topology == "whole" else 0.0
    classifier = how.model_copy(update={"moments": "own", "eta": eta or how.eta})
    own = {"classifier": classifier, "traffic": TrafficConfig(), "privacy": PrivacyConfig()}
    return config.model_copy(update=own)


def chosen_by_name(config: Config, method: Method | None = None) -> tuple[Method, Way, Rule]:
    """The method, the way of mending and the rule of a run; refuses unknown names."""
    chosen = method or find_method(config.run.method)
    BACKBONES.find(config.model.backbone)
    WAYS.find(config.mends_by)
    rule = RULES.find(config.classifier.aggregate).thing
    check_options(config, chosen)
    if in_private(config):
        chosen = as_private(chosen)
    return chosen, chosen.way(config.mends_by), rule


def num_rounds(config: Config, method: Method) -> int:
    """Rounds of both phases, for all local models; fewer where training stops early."""
    models = config.data.owners if method.topology == "alone" else 1
    mending = method.way(config.mends_by).rounds(config)
    return (mending + config.classifier.rounds_c) * models


def plan_of(
    config: Config,
    method: Method,
    way: Way,
    num_features: int,
    num_classes: int,
    nodes: Sequence[int],
    weights: Mapping[OwnerId, float] | None = None,
    numbers: int | None = None,
    counted: int = 0,
) -> Plan:
    """Settings, shapes and what may be asked: they depend on no data but its size."""
    config = fitting(config, method)
    own = procedures_in(*method.modules)
    for name in TRAINING.keys() & (way.asks | own).keys():
        if (way.asks | own)[name] is not TRAINING[name]:
            raise ConfigError(f"'{name}' is a procedure of every run. Give yours another name.")
    given = own | way.asks | TRAINING
    if in_sums(config):
        from fedsage.protocol.hidden_sums.owner import (
            make_keys,  # cryptography takes time to load
        )

        (check_private if in_private(config) else check_hidden)(config, way)
        given |= procedures_in(make_keys.module)
    asks = {name: one for name, one in given.items() if one.fits(config)}
    for one in asks.values():
        one.words(config)  # refuses a procedure that does not say what leaves
    return Plan(
        config, num_features, num_classes, tuple(nodes), asks, weights or {}, counted, numbers
    )


def check_hidden(config: Config, way: Way) -> None:
    """Refuse what cannot be done where the server sees sums alone."""
    if in_full(config):
        raise ConfigError(
            "--privacy sums adds up whole numbers, but traffic.how is 'full'. Add --set "
            "traffic.how=whole (or low-rank), or use --privacy open."
        )
    if config.classifier.aggregate != "mean":
        raise ConfigError(
            f"The rule '{config.classifier.aggregate}' compares owners' updates, which "
            "--privacy sums hides from the server. Use --aggregate mean, or --privacy open."
        )
    if why := way.bares(config):
        raise ConfigError(why)
    from fedsage.protocol.hidden_sums.messages import Note
    from fedsage.protocol.letters import Letters

    asked = [one for one in way.asks.values() if one.uses is Sealed and one.fits(config)]
    if shown := [one.name for one in asked if one.reply not in (Letters, Note)]:
        raise ConfigError(
            f"Mending by '{way.name}' shows the server replies that are for other owners "
            f"({shown[0]}). Use another way (mend.how), or --privacy open."
        )


def data_owners(setup: Setup) -> list[list[DataOwner]]:
    """The owners in groups that train together, each group by itself."""
    if setup.method.topology == "whole":
        return [[whole_owner(setup)]]
    alone = setup.method.topology == "alone"
    mended: list[Graph | None] = [None] * setup.owners.num_owners
    if setup.way.truth and setup.graph:
        missing = setup.way.truth(setup.graph, setup.owners.nodes)
        mended = [mend(*pair) for pair in zip(setup.owners.subgraphs, missing, strict=True)]
    parts = zip(setup.owners.subgraphs, setup.splits, mended, strict=True)
    owners = [
        setup.method.owner(i, *part[:2], setup.plan, part[2]) for i, part in enumerate(parts)
    ]
    for owner, seed in zip(owners, setup.seeds, strict=True):
        owner.seed = seed
    if setup.way.abroad and setup.method.topology == "federated":
        introduce_links(setup, owners)
    return [[owner] for owner in owners] if alone else [owners]


def introduce_links(setup: Setup, owners: Sequence[DataOwner]) -> None:
    """Tell owners of their links to others, and give each a name that it can sign with."""
    from fedsage.engines.simulated import RUN, known_keys
    from fedsage.protocol.letters import Abroad

    known = setup.owners.known
    if not known and setup.graph is not None:
        share = setup.config.links.share
        known = tuple(known_links(setup.graph, setup.owners.nodes, share, setup.plan.seed))
    if not known:
        raise ConfigError(
            "Mending by links needs owners that know links to others, but these know none. "
            'Name such links in their tables of links, with links = "known" in the schema '
            '(or shared = "same"), or mend in another way (mend.how).'
        )
    identities = known_keys(range(len(owners)), setup.owners.names)
    for owner, links in zip(owners, known, strict=True):
        owner.abroad = Abroad(links, identities[owner.id], RUN, form=setup.form)


def whole_owner(setup: Setup) -> DataOwner:
    """GlobSage's one owner: G, with the union of all owners' splits."""
    assert setup.graph is not None  # prepare saw to it
    pairs = list(zip(setup.owners.nodes, setup.splits, strict=True))

    def union(part: str) -> np.ndarray:
        return np.sort(np.concatenate([nodes[getattr(one, part)] for nodes, one in pairs]))

    split = Split(union("train"), union("val"), union("test"))
    return setup.method.owner(0, setup.graph, split, setup.plan)
