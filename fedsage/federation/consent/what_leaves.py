"""What leaves an owner in a run, in plain words, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from fedsage.config import Config
from fedsage.federation.consent.policy import words_of
from fedsage.mending.subspace import STEPS
from fedsage.protocol.procedures import Procedure, in_private, in_sums
from fedsage.registry import is_file

NEVER = "Never: nodes, links, rows of features, single labels, predictions, your mended graph."
OPEN = (
    "The server sees all of this for each owner separately: sums are not hidden from it, and "
    "no noise is added. docs/security.md says what could be learned from it."
)
SUMS = (
    "The server sees sums over owners and nothing of yours alone: what is summed leaves under "
    "masks that cancel out in the sum. No noise is added to the sums. docs/security.md says "
    "what could be learned from them."
)
PRIVATE = (
    "The server sees sums over owners with noise, and nothing of yours alone: what is summed "
    "leaves under masks that cancel out in the sum. You add your share of the noise, from a "
    "secret in your kit. What all of this together tells about one node (its features, its "
    "label and its links) is bounded by ε = {epsilon:g} at δ = {delta:g}, for the server with "
    "a third of the owners and for whoever gets the model. That you take part, and your "
    "schema, are not covered. docs/privacy.md says what ε means."
)


def what_leaves(
    config: Config, asks: Iterable[Procedure[Any, Any, Any]], files: Mapping[str, str]
) -> str:
    """The list for one run: what each procedure declares.

    ``files`` are checksums of files that are not part of fedsage, by setting.
    """
    words = [said for one in asks if (said := one.words(config))]
    words += [
        f"This run uses a file that you allowed (for {setting}, SHA-256 {seen[:12]}…). What it "
        "sends is described in its author's words above; fedsage checks shapes, not meaning."
        for setting, seen in files.items()
    ]
    lines = "\n".join(f"- {line}" for line in words)
    return (
        f"What leaves this site in this run ({config.run.method}, preset "
        f"{config.run.preset}):\n{lines}\n{NEVER}\n{who_sees(config)}\n"
    )


def who_sees(config: Config) -> str:
    """Who can read what leaves, and what could be learned from it."""
    if in_private(config):
        return PRIVATE.format(epsilon=config.privacy.epsilon, delta=config.privacy.delta)
    return SUMS if in_sums(config) else OPEN


def words_of_agreeing(config: Config) -> str:
    """What leaves when agreeing; whether the number of training nodes does is a setting."""
    about = (
        "Once, at the start: the version of fedsage, a checksum of your schema with the names "
        "of classes, the name and kind of every column with two bytes of a checksum of its "
        "settings"
    )
    if in_sums(config):
        most = told_nodes(config)
        few = f", and how many nodes you have if it is fewer than {most}" if most > 1 else ""
        return f"{about}{few}."
    weighted = config.classifier.weighting == "nodes"
    return (
        f"{about}, and how many nodes you have"
        f"{' and how many of them are for training' * weighted}."
    )


def told_nodes(config: Config) -> int:
    """The most nodes that what is exchanged depends on; 1 if it depends on no number.

    See :func:`mending.subspace.rank_of` and :func:`mending.neighgen.check_batches`.
    """
    _, way = words_of(config).get("mending", ("", "none"))
    if not in_private(config) and (way == "subspace" or is_file(way)):
        return 2 * STEPS * config.mend.rank
    gen = config.neighgen
    return ceil((gen.min_batch + 1) / (1 - gen.hide_ratio)) + 1 if way == "neighgen" else 1
