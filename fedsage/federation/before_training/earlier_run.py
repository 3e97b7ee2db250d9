"""Runs between machines that begin with an earlier one: every party has its own copy of it.

No φ is handed to an owner. The agreement names the earlier classifier by its checksum, and the
owner looks for it among its own runs. Where the server sees only sums, it must be one that the
owner computed itself from sums that it took part in: otherwise a server could let owners count
hits for a classifier of its own choice.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int
from torch import Tensor, from_numpy

from fedsage.config import Config
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.files import write_json
from fedsage.models.backbone import is_ours
from fedsage.models.classifier import CARD, NodeClassifier, load_models
from fedsage.models.parameters import parameters_of, sha256_of
from fedsage.models.warm_start import Places, check_same_model
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Ints, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import (
    Open,
    begins_with_another,
    in_private,
    in_sums,
    procedure,
)
from fedsage.runs.earlier_run import Earlier, earlier_run, start_of

if TYPE_CHECKING:
    from fedsage.federation.owner.site import Site

CHECKSUM = re.compile("[0-9a-f]{64}")
START = "start.json"  # in an owner's folder of a run: whether another may begin with it


@message
class Carried:
    """D_i → S: where today's features and classes stood in the earlier run; -1: nowhere."""

    columns: Int[Tensor, " d_x"]
    classes: Int[Tensor, " d_y"]


def remember_start(owner: DataOwner, folder: Path) -> None:
    """Keep with a finished run what its owner knows of the classifier that it ended with."""
    checked = in_sums(owner.config) and not in_private(owner.config) and not owner.foreign
    known = {"sha256": sha256_of(parameters_of(owner.model)), "from_sums": checked}
    write_json(folder / START, known)


def own_earlier(runs: Path, config: Config, name: str) -> Earlier | None:
    """The run of this owner that the agreed one begins with, if it begins with any."""
    wanted = config.run.start_from
    if not wanted:
        return None
    seen = [(path.parent, json.loads(path.read_text())) for path in runs.glob(f"*/{START}")]
    ended = [(folder, known) for folder, known in seen if known["sha256"] == wanted]
    if not ended:
        raise ConfigError(
            f"The run begins with the classifier {wanted[:12]}…, but no run of owner {name} "
            "ended with it. Start from a run that every owner took part in, or train from "
            "scratch."
        )
    checked = [folder for folder, known in ended if known["from_sums"]]
    if in_sums(config) and not checked:
        raise PrivacyError(
            f"The run begins with the classifier {wanted[:12]}…, of which owner {name} cannot "
            "tell that it came from sums of all owners: it was absent at the end, or that run "
            "was open. Start from another run, or train from scratch."
        )
    folder = checked[0] if checked else ended[0][0]
    found = earlier_run(folder, config.model.backbone)
    if sha256_of(found.model.phi) != wanted:
        raise ConfigError(f"Owner {name}: the model of run {folder.name} has been changed.")
    return replace(found, where=f"run {folder.name}")


def begun_with(site: Site, plan: Plan) -> Plan:
    """The plan with this owner's earlier classifier, and its own generator if it has one."""
    if site.earlier is None:
        return plan
    way = site.method.way(plan.config.mends_by)
    mine = {site.index: site.name} if way.continues == "own" else {}
    theta = site.earlier.generators(way, plan.config.neighgen, mine)
    places = site.earlier.places(plan, site.owned.names[1], site.owned.schema)
    for words in places.notes:
        site.tell(words)
    site.places = places
    return replace(plan, start=start_of(site.earlier, plan, places, theta))


@procedure(
    phase="evaluation",
    uses=Open,
    shapes=lambda plan: {"columns": Ints((plan.d_x,)), "classes": Ints((plan.d_y,))},
    when=begins_with_another,
    leaves="Once, at the start: which columns and classes the earlier run had, by number.",
)
def begin(site: Any, ask: Ask) -> Carried:
    """Where today's features and classes stood in the earlier run."""
    if site.places is None:
        raise ProtocolError("This run does not start from an earlier one.")
    both = site.places.columns, site.places.classes
    return Carried(*(from_numpy(one.astype(np.int32)) for one in both))


def begin_together(exchange: Exchange, plan: Plan, folder: Path) -> Plan:
    """The server's plan with the earlier classifier, fitted as all owners fit it."""
    if not begins_with_another(plan.config):
        return plan
    model = kept_model(folder.parent, plan.config)
    check_same_model(model.shape, plan.shape, "the earlier run")
    replies = exchange.all(begin, Ask(0), len(exchange.owners))
    places = agreed_places(model, list(replies.values()))
    start = start_of(Earlier("the earlier run", model, {}), plan, places, {})
    return replace(plan, start=start)


def agreed_places(model: NodeClassifier, replies: list[Carried]) -> Places:
    """The same places from all owners; refuses others."""
    pairs = [(one.columns.numpy(), one.classes.numpy()) for one in replies]
    sizes = model.shape.num_features, model.shape.num_classes
    for pair in pairs:
        for place, size, first in zip(pair, sizes, pairs[0], strict=True):
            kept = place[place >= 0]
            within = len(np.unique(kept)) == len(kept) and (kept < size).all()
            if not within or (place != first).any():
                raise ConfigError(
                    "Owners differ in what the earlier run had. Give every owner the same "
                    "schema.toml, then and now."
                )
    return Places(*pairs[0])


def kept_model(runs: Path, config: Config) -> NodeClassifier:
    """The server's copy of the classifier that the agreed run begins with."""
    wanted, backbone = config.run.start_from, config.model.backbone
    for path in sorted(runs.glob(f"*/{CARD}")):
        (model,) = load_models(path.parent, None if is_ours(backbone) else backbone)
        if sha256_of(model.phi) == wanted:
            return model
    raise ConfigError(
        f"No run of this server ended with the classifier {wanted[:12]}…. Start from a run "
        "that this federation has made, or train from scratch."
    )


def with_checksum(config: Config) -> Config:
    """The same settings, with the checksum of the earlier classifier in place of its folder."""
    named = config.run.start_from
    if not named or CHECKSUM.fullmatch(named):
        return config
    found = earlier_run(Path(named), config.model.backbone).model.phi
    run = config.run.model_copy(update={"start_from": sha256_of(found)})
    return config.model_copy(update={"run": run})
