"""An owner made ready for an agreed run: its masks, its links to others, and its purse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedsage.config import Config
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.consent.policy import Policy, read_policy
from fedsage.federation.consent.proposal import Proposal
from fedsage.federation.kits.kit import Kit
from fedsage.graph.feature_forms import RAW
from fedsage.graph.graph import Graph
from fedsage.privacy.accountant import honest
from fedsage.privacy.keys import threshold_of
from fedsage.privacy.ledger import SPENT, Budget, Ledger
from fedsage.protocol.hidden_sums.masks import Identity, Masks
from fedsage.protocol.hidden_sums.memory import FILE as SUMS
from fedsage.protocol.hidden_sums.memory import Remembered
from fedsage.protocol.letters import Abroad
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import PrivateOwner, terms_of
from fedsage.protocol.procedures import in_private
from fedsage.protocol.sent_log import AGREED
from fedsage.rng import with_secret
from fedsage.runs.checks import check_private_tables

if TYPE_CHECKING:
    from fedsage.federation.owner.site import Site

LINKS = "links.safetensors"  # what it gave and got by links, in all runs


def identity_of(site: Site) -> Identity:
    """How an owner signs; refuses one that cannot."""
    if site.identity is None:
        raise PrivacyError(f"Owner {site.name} has no certificate to sign keys with.")
    return site.identity


def new_masks(site: Site, config: Config) -> Masks:
    """An owner's masks for a run; in a private one, sums need the noise of enough owners."""
    identity = identity_of(site)
    least = max(site.policy.rules["fewest.owners"], threshold_of(identity.owners))
    kept = Remembered(site.folder / SUMS)
    masks = Masks(site.index, site.folder.name, identity, least, kept)
    if in_private(config):
        masks.enough = honest(config.data.owners)
    return masks


def new_owner(site: Site, graph: Graph) -> DataOwner:
    """The owner that trains, with what it keeps secret."""
    owner: DataOwner = site.method.owner(site.index, graph, site.split, site.plan)
    owner.seed = with_secret(site.plan.seed, site.secret)
    owner.fewest = site.policy.rules["fewest.test_nodes"]
    if site.door.masks is not None:
        owner.sum_masks = site.door.masks
    if site.method.way(site.plan.config.mends_by).abroad:
        owner.abroad = abroad_of(site)
    if isinstance(owner, PrivateOwner):
        owner.purse.run = site.folder.name
        owner.purse.ledger = ledger_of(site.policy, site.runs.parent)
        site.door.receipt = owner.purse.receipt
    return owner


def abroad_of(site: Site) -> Abroad:
    """What this owner knows of others' nodes, and how it tells who they are."""
    identity = identity_of(site)
    links = site.owned.known(identity.names)
    if links is None:
        raise ConfigError(
            f"The run uses links between owners, but the schema of owner {site.name} does "
            'not allow any. Add links = "known" or shared = "same" to every owner\'s schema.'
        )
    kept, form = site.runs / LINKS, site.form or RAW
    return Abroad(links, identity, site.folder.name, kept, form)


def ledger_of(policy: Policy, ours: Path) -> Ledger:
    """What an owner's nodes have cost in all private runs, and its budget for them."""
    rules = policy.rules
    return Ledger(ours / SPENT, Budget(rules["budget.epsilon"], rules["budget.delta"]))


def cost_so_far(kit: Kit) -> str:
    """What all private runs of an owner have cost, and its budget, in words."""
    ledger = ledger_of(read_policy(kit.path), kit.ours)
    budget, runs = ledger.budget, len({one.run for one in ledger.entries()})
    assert budget is not None
    return (
        f"Your private runs so far ({runs}) have cost ε = {ledger.spent(budget.delta):.2f} of "
        f"your budget of {budget.epsilon:g}, at δ = {budget.delta:g}."
    )


def check_private_run(site: Site, proposed: Proposal) -> None:
    """Refuse a private run that the owner cannot pay for, or whose noise might not suffice."""
    config, run = proposed.config, proposed.run
    if not in_private(config):
        return
    if (known := identity_of(site).owners) != config.data.owners:
        raise PrivacyError(
            f"The run is for {config.data.owners} owners, but this federation has {known}: the "
            "shares of the noise would not fit. Nothing was sent."
        )
    check_private_tables(site.owned.schema)
    ledger, how = ledger_of(site.policy, site.runs.parent), config.privacy
    begun = (site.runs / run / AGREED).exists()
    if not begun and any(one.run == run for one in ledger.entries()):
        raise PrivacyError(
            f"Run {run} was paid for before, but its folder is gone, so owner {site.name} does "
            "not know what it answered. Nothing was sent. Start a new run."
        )
    charges = terms_of(proposed.plan).charges
    ledger.afford(run, charges, Budget(how.epsilon, how.delta))
