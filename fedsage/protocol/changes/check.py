"""Whether a sum is what honest owners added up.

By proof: every owner adds a proof of its change and of the state it starts from. The sum of
proofs fits only the sum of changes, and only if all started from the same state. What the
server adds itself, the guide, follows from the sum except for the last bits, and every owner
can recompute it.

By accord: owners that train from the same φ move it in similar directions, at the start above
all, and less so from round to round. Beside its numbers, a sum has the summed squares of what
every owner sent. Both together give the owners' mean cosine, their *accord*. An owner that
sends its change reversed, or a far larger one, moves it more in a round than training does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedsage.errors import PrivacyError
from fedsage.privacy.sums import decode
from fedsage.protocol.changes.state import RIGHT, Change, Common, checksum_of
from fedsage.protocol.changes.step import BEYOND, NEXT, UNITS, accord_of, guide_of
from fedsage.protocol.changes.weights import SQUARES, directions

MOST_STEPS = 2**32  # in an epoch: one for each node of a very large graph
MOST = 2**60  # of a number in a sum: far below what a float can hold
FIRST = (0.15, 1.0)  # the accord of the first round; measured: .25 to .85
FALL, RISE = 0.15, 0.2  # how much it may change in a round; a fall to a third is usual too
LEAST = 0.5  # a sum's square, in sums of squares: 1 if owners move independently
NEAR = 0.02  # how far a guide may be from this owner's own: machines round differently


def proof_of_change(
    secret: bytes, what: str, common: Common, change: Change, again: int = 0
) -> int:
    """The proof of a change, or of a sum of them, that starts from the common state.

    Every try of a round of each model (``what``) has weights of its own, so that no two sums
    can be combined to a third that fits.
    """
    from fedsage.privacy.proof import proof_of  # cryptography takes time to load

    rows = [change.parts[part].reshape(-1).numpy() for part in sorted(change.parts)]
    start = int(checksum_of(common)[:14], 16)
    more = [change.weight, change.steps, change.loss, change.count, start * change.count]
    wide = np.concatenate([row.astype(np.int32) for row in rows])
    about = f"{what}, round {common.t}, try {again}"
    return proof_of(secret, about, wide, more)


def check_sum(secret: bytes, what: str, common: Common, total: Change, again: int = 0) -> None:
    """Refuse a sum that is not that of owners with the same state."""
    from fedsage.privacy.proof import PRIME

    if total.proof % PRIME != proof_of_change(secret, what, common, total, again):
        raise PrivacyError(
            f"The sum of round {common.t} is not what the owners added up, or they did not all "
            f"start from the same state of {what}. The server, or something on the way, "
            "altered it. Nothing was sent."
        )


def check_guide(common: Common, total: Change, guide: Mapping[str, Tensor]) -> None:
    """Refuse a guide from the server that does not follow from the sum."""
    own = guide_of(common, total)
    wrong = guide.keys() != own.keys() or any(
        strays(common, name, total, guide, own) for name in common.bases
    )
    if wrong:
        raise PrivacyError(
            f"The server's guide to the sum of round {common.t} does not follow from it. "
            "Nothing was sent."
        )


def strays(
    common: Common,
    name: str,
    total: Change,
    guide: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
) -> bool:
    """Whether the guide for one weight differs from this owner's own."""
    right = decode(total.parts[RIGHT + name], common.units[RIGHT + name])
    basis = directions(guide[NEXT + name])
    if basis.shape != right.shape:
        return True
    upright = basis.T @ basis - torch.eye(basis.shape[1], dtype=torch.float64)
    outside = right - basis @ (basis.T @ right)
    said, found = (
        decode(one[BEYOND + name], one[UNITS + name].numpy()) for one in (guide, own)
    )
    return (
        float(upright.abs().max()) > NEAR
        or float(outside.norm()) > NEAR * float(right.norm())
        or said.shape != found.shape
        or float((said - found).norm()) > NEAR * float(found.norm())
    )


def impossible(common: Common, total: Change) -> str | None:
    """Why no owners' training could give this sum, or None."""
    most = 2 * common.config.classifier.most_epochs * MOST_STEPS
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
