"""Before training, at the server: owners join and agree on the scale of their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch

from fedsage.errors import ConfigError
from fedsage.federation.columns import column_squares, column_sums
from fedsage.federation.site import Site
from fedsage.protocol.agreement import Agreement, ColumnMeans, ColumnScale, Joined
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, OwnerId
from fedsage.tables.compare import differences, read_marks
from fedsage.tables.digits import numbers_of
from fedsage.tables.tables import mean_of, scale_of


def join(
    exchange: Exchange,
    run: str,
    version: str,
    settings: str,
    files: Mapping[str, str],
    names: Sequence[str],
) -> dict[OwnerId, Joined]:
    """Every owner joins, with the same features and classes as all others.

    Absent owners are left out of the run. Owners compare versions themselves.
    """
    own = json.dumps(files)
    asked = {i: Agreement(run, i, version, settings, own) for i in exchange.owners}
    joined = exchange.all(Site.agree, asked)
    exchange.leave_out([i for i in exchange.owners if i not in joined])
    check_same_schema(joined, names)
    return joined


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
    """Mean and standard deviation of every column over all owners, from sums alone."""
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
