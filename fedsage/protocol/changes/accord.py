"""Whether a sum of changes can be that of honest owners, told from the sum alone.

Owners that train from the same φ move it in similar directions, at the start above all, and
less so from round to round. Beside its numbers, a sum has the summed squares of what every
owner sent. Both together give the owners' mean cosine, their *accord*. An owner that sends its
change reversed, or a far larger one, moves it more in a round than training does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from fedsage.privacy.sums import decode
from fedsage.protocol.changes.weights import LEFT, REST, SQUARES

if TYPE_CHECKING:
    from fedsage.config import Config
    from fedsage.protocol.changes.state import Change, Common

MOST_STEPS = 2**32  # in an epoch: one for each node of a very large graph
MOST = 2**60  # of a number in a sum: far below what a float can hold
FIRST = (0.15, 1.0)  # the accord of the first round; measured: .25 to .85
TRAINED = 0.1  # roughly what it is from weights that are trained already
FALL, RISE = 0.15, 0.2  # how much it may change in a round; a fall to a third is usual too
LEAST = 0.5  # a sum's square, in sums of squares: 1 if owners move independently


def accord_of(common: Common, total: Change) -> float:
    """The mean cosine between two owners' changes, as far as they are alike in size."""
    if total.count < 2:
        return 0.0
    declared = common.next_usual(total) ** 2 * total.count
    found = math.fsum(one for part in moves(common) for one in squares(common, part, total))
    return (found / declared - 1) / (total.count - 1) if declared else 0.0


def moves(common: Common) -> list[str]:
    """The parts of a change that move φ."""
    return [part for part in common.exponents if part == REST or part.startswith(LEFT)]


def squares(common: Common, part: str, total: Change) -> list[float]:
    """The summed squares of a part, exact for numbers of the same unit."""
    values = decode(total.parts[part], common.units[part]).square()
    if part != REST:
        return [float(one) for one in values.sum(dim=0)]
    sizes = [common.phi[name].numel() for name in common.small]
    return [float(one.sum()) for one in torch.split(values, sizes)]


def most_epochs(config: Config) -> int:
    """How many epochs any owner may train for in a round."""
    return max(config.classifier.local_epochs, config.classifier.small_epochs)


def impossible(common: Common, total: Change) -> str | None:
    """Why no owners' training could give this sum, or None."""
    most = 2 * most_epochs(common.config) * MOST_STEPS
    if not total.count:
        return "numbers that are not finite"
    if not 0 < total.count <= common.owners or not 0 < total.weight < MOST:
        return f"changes of {total.count} owners, but there are {common.owners}"
    if not 1 <= total.steps / total.weight <= most:
        return "a number of steps that training cannot take"
    if bool((total.parts[SQUARES] < 0).any()):
        return "squares below zero"
    return None


def discord(common: Common, total: Change) -> str | None:
    """Why this sum cannot be of honest owners alone, or None."""
    if total.count == 1 or (why := impossible(common, total)):
        return None if total.count == 1 else why
    accord = accord_of(common, total)
    low, high = FIRST if math.isnan(common.accord) else bounds(common.accord, total.count)
    if low <= accord <= high:
        return None
    return f"a mean cosine of {accord:.2f} between owners' changes, not {low:.2f} to {high:.2f}"


def bounds(before: float, owners: int) -> tuple[float, float]:
    """Between which an accord of honest owners is, after that of the round before."""
    least = (LEAST - 1) / (owners - 1)
    return max(least, min(before / 3, before - FALL)), before + RISE
