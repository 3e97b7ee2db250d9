"""The exchange of known links, step by step: owners meet, find nodes, ask, contribute, mend.

An owner's part in each step is short; the files that it calls say how and why.
"""

from __future__ import annotations

import logging
from functools import partial

import numpy as np

from fedsage.errors import ConfigError, PrivacyError
from fedsage.mending.links.contributions import (
    GroupParts,
    GroupsAsked,
    answered,
)
from fedsage.mending.links.far_ends import FoundNodes, SoughtNodes
from fedsage.mending.links.groups import Guesses, class_guesses, safe_groups
from fedsage.mending.links.leaves import for_new_nodes, leaves, remembered
from fedsage.mending.links.likely_rows import likely_rows
from fedsage.mending.links.matching import LinkWork
from fedsage.mending.links.memory import ASKED
from fedsage.mending.links.shared_nodes import Sides, facts_of
from fedsage.mending.links.shown_so_far import Shown
from fedsage.mending.links.summed_rows import words_from
from fedsage.mending.way import way_of_mending
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.letters import (
    Introduction,
    Introductions,
    Letters,
    delivered,
    letters_form,
)
from fedsage.protocol.messages import Ask, Mended
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Sealed, procedure
from fedsage.readable import counted

log = logging.getLogger(__name__)


def work(owner: DataOwner) -> LinkWork:
    """What this owner remembers of the exchange."""
    if owner.abroad is None:
        raise ConfigError(
            "This owner knows no links to others. Mend in another way (mend.how), or name such "
            "links in its table of links."
        )
    given = owner.id, owner.abroad, owner.config.links.match, owner.graph.num_features
    return owner.part("links", lambda: LinkWork(*given))


def called(owner: DataOwner) -> str:
    """What this owner is called in the log."""
    return f"Owner {work(owner).abroad.name_of(owner.id)}"


def shown(owner: DataOwner) -> Shown:
    """In which sums of others this owner's nodes are."""
    return owner.part("links shown", lambda: Shown(owner.graph.num_nodes))


def guesses_of(owner: DataOwner) -> Guesses:
    """What class each of its nodes may have."""
    own = owner.graph
    return class_guesses(own.x, own.y, owner.split.train, own.num_classes)


by_letter = partial(procedure, phase="mending", uses=Sealed, shapes=letters_form)


@procedure(
    phase="mending",
    leaves="Before training, once: a key for letters between owners, signed with your "
    "certificate.",
)
def introduce(owner: DataOwner, ask: Ask) -> Introduction:
    """Begin an exchange: a new key, and a new secret to blind ids with."""
    return work(owner).begin(owner.graph.x, facts_of(owner.graph.y, owner.split))


@by_letter(
    leaves="Before training, once: the ids of other owners' nodes that you have links to, "
    "and of your own nodes if owners hold nodes in common, blinded, and how many words rows "
    "usually have here, in letters that only those owners can open. They learn how many ids "
    "there are, and which of their own nodes are among them. The server sees how long letters "
    "are.",
)
def seek_nodes(owner: DataOwner, met: Introductions) -> Letters:
    """Ask the others for the nodes at the far ends of known links."""
    mine = work(owner)
    mine.channel.meet(met)
    for name, count in mine.away().items():
        told = called(owner), counted(count, "link"), name
        log.warning("%s has %s to owner %s, who does not take part: left out.", *told)
    if count := int((mine.links.at == owner.id).sum()):
        own = called(owner), counted(count, "link")
        log.warning("%s has %s to own nodes that it does not have: left out.", *own)
    return mine.channel.written(mine.sought(), "sought")


@by_letter(
    leaves="Before training, once: the ids of your own nodes, blinded and shuffled, in letters "
    "to other owners. They learn how many nodes you have, and which of the ids that they "
    "already had are yours.",
)
def find_nodes(owner: DataOwner, letters: Letters) -> Letters:
    """Help the others to find out which of their links lead here."""
    mine = work(owner)
    asked = mine.channel.read(SoughtNodes, letters, "sought")
    mine.agree(asked.values(), owner.graph.x)
    found = {i: mine.found_for(i, one) for i, one in asked.items()}
    return mine.channel.written(found, "found")


@by_letter(
    leaves="Before training, once, if your schema says that owners hold nodes in common: how "
    "many neighbors each node has that you and another owner hold, and which of these nodes "
    "have neighbors in common, in letters to that owner, without ids; and to all owners which "
    "of your nodes are in no sum because others hold them, too.",
)
def tell_sides(owner: DataOwner, letters: Letters) -> Letters:
    """Tell owners who hold the same nodes which neighbors these have here, by number."""
    mine = work(owner)
    mine.locate(mine.channel.read(FoundNodes, letters, "found"))
    if count := len(mine.dropped.differ):
        log.warning(
            "%s has %s with another class or part of the split at another owner: neither "
            "trained on nor counted.",
            called(owner),
            counted(count, "node"),
        )
    sought, found = mine.ends.reached(mine.channel.keys)
    if 2 * found < sought:
        log.warning(
            "%s: only %d of %s to other owners lead to a node that was found there. Check that "
            "%s.",
            called(owner),
            found,
            counted(sought, "link"),
            "both ends list them (links.match=hashes)"
            if mine.match == "hashes"
            else "all owners write ids in the same way",
        )
    return mine.channel.written(mine.sides_for(owner.graph), "sides")


@by_letter(
    leaves="Before training, once: which nodes of other owners are to be summed together for "
    "you, in letters to those owners. Each learns with nodes of which owners its own ones are "
    "summed.",
)
def request_sums(owner: DataOwner, letters: Letters) -> Letters:
    """Ask for sums over groups of remote nodes; each node is in one group."""
    mine = work(owner)
    mine.add_sides(mine.channel.read(Sides, letters, "sides"))
    here, there = mine.ends.to_ask_for(mine.memory.ids_before(ASKED, ""))
    own, least, others = owner.graph, owner.config.links.at_least, len(mine.channel.keys)
    if others < least:
        log.warning(
            "%s: links.at_least is %d, and %s %s part: no sums are made, as each has nodes of "
            "different owners.",
            called(owner),
            least,
            counted(others, "other owner"),
            "takes" if others == 1 else "take",
        )
    group = safe_groups(here, there, mine.ends.whose, own.x, guesses_of(owner), least)
    return mine.channel.written(mine.requests(group), "groups")


@by_letter(
    keeps=shown,
    leaves="Before training, once: sums of your nodes' features, masked so that the owner who "
    "asked sees only their total with other owners' sums. Every sum is over at least "
    "{config.links.at_least} nodes of different owners, and none is in another sum of that "
    "owner.",
)
def contribute(owner: DataOwner, letters: Letters) -> Letters:
    """Add to the sums that others asked for; who asks for more than is safe gets nothing."""
    mine, seen, parts = work(owner), shown(owner), {}
    for i, asked in mine.channel.read(GroupsAsked, letters, "groups").items():
        try:
            own = mine.own_nodes(asked)
            told = own, owner.id, i, owner.config.links.at_least
            parts[i] = answered(mine.rows, mine.words, *told, mine.key_for(i))
            more = seen.with_more(i, own)
            mine.give(i, own, again=i in seen.to)
            seen.to[i] = more
        except PrivacyError as error:
            parts.pop(i, None)
            log.warning("%s", error)
    return mine.channel.written(parts, "parts")


@procedure(phase="mending", keeps=work)
def take_sums(owner: DataOwner, letters: Letters) -> Mended:
    """Take in what the others added; a group that lacks somebody's part is left out."""
    mine = work(owner)
    mine.take(mine.channel.read(GroupParts, letters, "parts"), owner.graph.x)
    return Mended()


@procedure(phase="mending", owed=True)
def mend_by_links(owner: DataOwner, ask: Ask) -> Mended:
    """Attach a neighbor for every known link: what the other end's row may be, by its sum.

    Nodes that get none get a copy of themselves, or nothing.
    """
    mine, copies = work(owner), owner.config.links.others == "copy"
    owner.split = mine.dropped.apply(owner.split)
    here, there, weights = mine.neighbors()
    words = words_from(owner.graph.x, mine.abroad.form)
    owner.remembered = remembered(mine.held, here, there, words, copies)
    rows = likely_rows(mine.held, here, there, owner.graph.x, guesses_of(owner), words)
    nodes = np.arange(owner.graph.num_nodes)
    return owner.attach(leaves(rows, here, there, weights, owner.graph, nodes, copies))


@way_of_mending("links", sections=("mend", "links"), abroad=True, renew=for_new_nodes)
def by_links(exchange: Exchange) -> None:
    """Means over small groups of remote neighbors: sealed letters, masked sums."""
    met = exchange.all(introduce, Ask(0))
    everyone = Introductions({str(i): one for i, one in met.items()})
    letters = exchange.pass_on(seek_nodes, dict.fromkeys(met, everyone))
    for step in (find_nodes, tell_sides, request_sums, contribute):
        letters = exchange.pass_on(step, delivered(letters))
    exchange.all(take_sums, delivered(letters))
    exchange.all(mend_by_links, Ask(0))
