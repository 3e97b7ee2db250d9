"""What owners add up before training: the number of nodes, and the scale of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedsage.data.owned import Owned
from fedsage.errors import PrivacyError
from fedsage.protocol.agreement import ColumnMeans, ColumnSquares, ColumnSums, NodeCount
from fedsage.protocol.messages import Ask, Ints
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_sums, procedure, procedures_in
from fedsage.tables.digits import DIGITS, digits_of
from fedsage.tables.tables import column_squares as squares_in
from fedsage.tables.tables import column_sums as sums_in

FEWEST = 8  # the fewest nodes that any sum may cover
NOTHING = torch.zeros(0, DIGITS, dtype=torch.int32)


def sums_form(plan: Plan) -> dict[str, Any]:
    """The form of sums over columns."""
    return {"count": Ints((plan.numbers,)), "total": Ints((plan.numbers, DIGITS))}


@procedure(
    phase="evaluation",
    uses=Summed,
    leaves="Once, at the start: how many nodes you have.",
    when=in_sums,
)
def count_nodes(owned: Owned, ask: Ask) -> NodeCount:
    """|V_i|."""
    return NodeCount(owned.num_nodes)


@procedure(
    phase="evaluation",
    uses=Summed,
    shapes=sums_form,
    leaves="Once, at the start: for every column of numbers (counts, dates, yes and no among "
    "them), how many values it has and their sum (over all your nodes together).",
)
def column_sums(owned: Owned, ask: Ask) -> ColumnSums:
    """Sums over all nodes, for the mean."""
    if owned.tables is None:
        return ColumnSums(NOTHING[:, 0], NOTHING)
    check_enough(owned)
    count, total = sums_in(owned.tables)
    counted = torch.from_numpy(count.astype(np.int32))
    return ColumnSums(counted, torch.from_numpy(digits_of(total)))


@procedure(
    phase="evaluation",
    uses=Summed,
    shapes=lambda plan: {"total": Ints((plan.numbers, DIGITS))},
    leaves="Once, at the start: for every column of numbers, the sum of squared distances "
    "from the mean of all owners.",
)
def column_squares(owned: Owned, means: ColumnMeans) -> ColumnSquares:
    """Sums over all nodes, for the standard deviation, with one mean for each column."""
    mean, columns = means.mean, (owned.num_numbers,)
    if mean.shape != columns or not bool(torch.isfinite(mean).all()):
        raise PrivacyError(
            f"This owner has {columns[0]} columns of numbers, but received means of shape "
            f"{tuple(mean.shape)}: a mean for each node would reveal single nodes."
        )
    if owned.tables is None:
        return ColumnSquares(NOTHING)
    check_enough(owned)
    found = squares_in(owned.tables, means.mean.numpy())
    return ColumnSquares(torch.from_numpy(digits_of(found)))


def check_enough(owned: Owned) -> None:
    """Refuse sums over so few nodes that they would reveal single values."""
    assert owned.tables is not None
    count, _ = sums_in(owned.tables)
    few = (count > 0) & (count < FEWEST)
    if few.any():
        raise PrivacyError(
            f"This owner has a column with {int(count[few][0])} values: sums over "
            f"fewer than {FEWEST} would reveal single ones. Leave this owner out, or fill or "
            "drop the column."
        )


COLUMNS = procedures_in(count_nodes.module)
