"""Before and after training, between parties on separate machines: agree, scale, finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from fedsage.errors import ConfigError
from fedsage.protocol.engine import Engine
from fedsage.protocol.messages import (
    Able,
    Agreement,
    Ask,
    ColumnMeans,
    ColumnScale,
    ColumnSquares,
    ColumnSums,
    Finish,
    Joined,
    OwnerId,
    Ready,
    Step,
)
from fedsage.protocol.procedures import Procedure
from fedsage.tables.tables import mean_of, scale_of


class Home(Protocol):
    """An owner on its own machine, with its data, before and after training."""

    def agree(self, agreement: Agreement) -> Joined:
        """Compare versions, take the settings, say how much data there is."""

    def column_sums(self, ask: Ask) -> ColumnSums:
        """Sums over all nodes, for the mean."""

    def column_squares(self, means: ColumnMeans) -> ColumnSquares:
        """Sums over all nodes, for the deviation."""

    def receive_scale(self, scale: ColumnScale) -> Ready:
        """Scale the columns, and be ready to train."""

    def able(self, step: Step) -> Able:
        """Whether the state of that moment was kept."""

    def restore(self, step: Step) -> Ready:
        """Be again as at that moment."""

    def finish(self, finish: Finish) -> Ready:
        """Write the model, the mended graph and predictions to the owner's own disk."""


AGREE: Procedure[Home, Agreement, Joined] = Procedure(
    "agree", "evaluate", Agreement, Joined, lambda home, ask: home.agree(ask)
)
COLUMN_SUMS: Procedure[Home, Ask, ColumnSums] = Procedure(
    "column_sums", "evaluate", Ask, ColumnSums, lambda home, ask: home.column_sums(ask)
)
COLUMN_SQUARES: Procedure[Home, ColumnMeans, ColumnSquares] = Procedure(
    "column_squares", "evaluate", ColumnMeans, ColumnSquares,
    lambda home, means: home.column_squares(means),
)  # fmt: skip
RECEIVE_SCALE: Procedure[Home, ColumnScale, Ready] = Procedure(
    "receive_scale", "evaluate", ColumnScale, Ready,
    lambda home, scale: home.receive_scale(scale),
)  # fmt: skip
ABLE: Procedure[Home, Step, Able] = Procedure(
    "able", "evaluate", Step, Able, lambda home, step: home.able(step)
)
RESTORE: Procedure[Home, Step, Ready] = Procedure(
    "restore", "evaluate", Step, Ready, lambda home, step: home.restore(step)
)
FINISH: Procedure[Home, Finish, Ready] = Procedure(
    "finish", "evaluate", Finish, Ready, lambda home, end: home.finish(end)
)

JOINING = {
    procedure.name: procedure
    for procedure in (
        AGREE, COLUMN_SUMS, COLUMN_SQUARES, RECEIVE_SCALE, ABLE, RESTORE, FINISH,
    )
}  # fmt: skip


def agree(
    engine: Engine, run: str, version: str, settings: str, names: Sequence[str]
) -> dict[OwnerId, Joined]:
    """Every owner joins, with the same features and classes as all others.

    Who is not there is left out of the run. Owners compare versions themselves.
    """
    asked = {i: Agreement(run, i, version, settings) for i in engine.owners}
    joined = engine.exchange(AGREE, asked)
    engine.leave_out([i for i in engine.owners if i not in joined])
    schemas = {i: reply.schema for i, reply in joined.items()}
    check_same("schema", schemas, names, "Give every owner the same schema.toml.")
    return joined


def check_same(what: str, seen: Mapping[OwnerId, str], names: Sequence[str], hint: str) -> None:
    """Refuse to start where parties differ, and name two of them."""
    (first, here), *others = seen.items()
    for other, there in others:
        if there != here:
            one, two = (
                ("the server" if i < 0 else f"owner {names[i]}") for i in (first, other)
            )
            raise ConfigError(
                f"The {what} differs: {one} has {here[:16]}, {two} has {there[:16]}. {hint}"
            )


def agree_on_scale(engine: Engine) -> ColumnScale:
    """Mean and deviation of every column over all owners, from sums alone."""
    everyone = len(engine.owners)
    sums = engine.exchange(COLUMN_SUMS, dict.fromkeys(engine.owners, Ask(0)), everyone)
    count = np.sum([one.count.numpy() for one in sums.values()], axis=0)
    total = np.sum([one.total.numpy() for one in sums.values()], axis=0)
    means = ColumnMeans(torch.from_numpy(mean_of(count, total)))
    replies = engine.exchange(COLUMN_SQUARES, dict.fromkeys(sums, means), everyone)
    squares = np.sum([one.total.numpy() for one in replies.values()], axis=0)
    found = scale_of(count, total, squares)
    return ColumnScale(torch.from_numpy(found.mean), torch.from_numpy(found.std))


def give_scale(engine: Engine, scale: ColumnScale) -> None:
    """Every owner scales its columns; nobody may miss that."""
    engine.exchange(RECEIVE_SCALE, dict.fromkeys(engine.owners, scale), len(engine.owners))
