"""Before training, at the server: owners join and agree on the scale of their columns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedsage.checkpoint.store import Shelf
from fedsage.errors import Absent, ConfigError, ProtocolError
from fedsage.federation.before_training.columns import column_squares, column_sums, count_nodes
from fedsage.federation.consent.policy import settings_in
from fedsage.federation.owner.site import Site
from fedsage.protocol.agreement import Agreement, ColumnMeans, ColumnScale, Joined
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.hidden_sums.server import HiddenSums
from fedsage.protocol.messages import Ask, OwnerId
from fedsage.protocol.procedures import in_private, in_sums
from fedsage.readable import listed
from fedsage.tables.compare import differences, read_marks
from fedsage.tables.digits import numbers_of
from fedsage.tables.tables import mean_of, scale_of


@dataclass(frozen=True, slots=True)
class Members:
    """Who takes part in a run; kept when it begins, and true whoever is away later."""

    joined: dict[OwnerId, Joined]
    nodes: int  # of all members, where only sums are seen; else, or in a private run, 0


def join(
    exchange: Exchange,
    run: str,
    version: str,
    settings: str,
    files: Mapping[str, str],
    names: Sequence[str],
    wait: float,
    tell: Callable[[str], None],
    folder: Path,
) -> Members:
    """Every owner joins, with the same features and classes as all others.

    Owners that are absent when the run begins, and those that decline, do not take part.
    Members that are absent when it continues are left out until it has started. Owners compare
    versions themselves. For owners that have not decided yet the run waits ``wait`` seconds.
    """
    shelf = Shelf(folder, "members", durable=True)
    found = shelf.get(0, Members)
    if found:
        exchange.leave_out([i for i in exchange.owners if i not in found.joined])
    own = json.dumps(files)
    asked = {i: Agreement(run, i, version, settings, own) for i in exchange.owners}
    await_consent(exchange, asked, names, wait, tell)
    joined = exchange.all(Site.agree, {i: asked[i] for i in exchange.owners})
    exchange.leave_out([i for i in exchange.owners if i not in joined])
    check_same_schema(joined, names)
    agreed = settings_in(settings)
    if in_sums(agreed):  # from here on the server sees only sums
        exchange.hidden = HiddenSums(exchange, run, agreed)
    if found is None:
        counts = in_sums(agreed) and not in_private(agreed)
        everyone = len(joined)
        nodes = exchange.sum(count_nodes, Ask(0), least=everyone).nodes if counts else 0
        found = Members(joined, nodes)
        shelf.put(0, found)
    return found


def await_consent(
    exchange: Exchange,
    asked: Mapping[OwnerId, Agreement],
    names: Sequence[str],
    wait: float,
    tell: Callable[[str], None],
) -> None:
    """Wait until owners have decided; continue with those that take part, if they suffice."""
    start, open_, least = time.monotonic(), list(exchange.owners), exchange.engine.min_owners
    lost: dict[OwnerId, str] = {}
    heard: set[OwnerId] = set()
    while open_:
        told = exchange.all(Site.consent, {i: asked[i] for i in open_}, 0)
        heard |= set(told)
        missed = {miss.owner: miss.why for miss in exchange.misses}
        lost |= {i: missed.get(i, "no answer") for i in open_ if i not in told}
        lost |= {i: declined(one.words) for i, one in told.items() if one.decided > one.yes}
        open_ = [i for i, one in told.items() if not one.decided]
        waited = time.monotonic() - start
        if open_ and waited > wait:
            lost |= dict.fromkeys(open_, f"it has not decided within {wait:g} s")
            open_ = []
        if len(asked) - len(lost) < least:
            why = " ".join(f"Owner {names[i]}: {words}." for i, words in lost.items())
            away = [i for i in lost if i not in heard]
            raise (Absent if away else ProtocolError)(
                f"Only {len(asked) - len(lost)} of {len(asked)} owners take part, but {least} "
                f"are needed. {why}"
            )
        if open_:
            who = listed([names[i] for i in open_])
            tell(f"waiting for the consent of {who}, for {waited:.0f} s now")
    exchange.leave_out(list(lost))


def declined(words: str) -> str:
    """An owner's refusal, with its words if it gave any."""
    return f"it declines to take part: {words.rstrip('.')}" if words else "it declines"


def check_same_schema(joined: Mapping[OwnerId, Joined], names: Sequence[str]) -> None:
    """Refuse to start if owners differ; name two of them, and the columns."""
    (first, here), *others = joined.items()
    for other, there in others:
        if there.schema != here.schema:
            marks = read_marks(here.columns), read_marks(there.columns)
            where = ", ".join(differences(*marks)) or "their features or classes"
            raise ConfigError(
                f"The schemas of owner {names[first]} and owner {names[other]} differ in "
                f"{where}. Make a common one with 'fedsage data merge', and give every owner "
                "the same schema.toml."
            )


def agree_on_scale(exchange: Exchange) -> ColumnScale:
    """Mean and standard deviation of every column over all owners, from sums alone.

    In a private run there are none: columns have ranges in the schema, which all know.
    """
    if in_private(exchange.plan.config):
        return ColumnScale(torch.zeros(0).double(), torch.zeros(0).double())
    everyone = len(exchange.owners)
    sums = exchange.sum(column_sums, Ask(0), least=everyone)
    count, total = sums.count.double().numpy(), numbers_of(sums.total.numpy())
    means = ColumnMeans(torch.from_numpy(mean_of(count, total)))
    squares = exchange.sum(column_squares, means, least=everyone).total
    found = scale_of(count, total, numbers_of(squares.numpy()))
    return ColumnScale(torch.from_numpy(found.mean), torch.from_numpy(found.std))


def give_scale(exchange: Exchange, scale: ColumnScale) -> None:
    """Every owner scales its columns; none may miss this."""
    exchange.all(Site.receive_scale, scale, len(exchange.owners))
