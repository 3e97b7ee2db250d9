"""How an owner checks that what the server sends out is what the owners added up.

Every owner adds a proof of its change and of the state it starts from. The sum of proofs fits
only the sum of changes, and only if all started from the same state. What the server adds
itself, the guide, follows from the sum except for the last bits, and every owner can recompute
it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedsage.errors import PrivacyError
from fedsage.privacy.sums import decode
from fedsage.protocol.changes.start import checksum_of
from fedsage.protocol.changes.state import BEYOND, NEXT, RIGHT, UNITS, Change, Common
from fedsage.protocol.changes.weights import directions

NEAR = 0.02  # how far a guide may be from this owner's own: machines round differently


def proof_of_change(secret: bytes, common: Common, change: Change, again: int = 0) -> int:
    """The proof of a change, or of a sum of them, that starts from the common state.

    Every try of a round has weights of its own, so that its sums cannot be combined.
    """
    from fedsage.privacy.proof import proof_of  # cryptography takes time to load

    rows = [change.parts[part].reshape(-1).numpy() for part in sorted(change.parts)]
    start = int(checksum_of(common)[:14], 16)
    more = [change.weight, change.steps, change.loss, change.count, start * change.count]
    wide = np.concatenate([row.astype(np.int32) for row in rows])
    about = f"round {common.t}, try {again}"
    return proof_of(secret, about, wide, more)


def check_sum(secret: bytes, common: Common, total: Change, again: int = 0) -> None:
    """Refuse a sum that is not that of owners with the same state."""
    from fedsage.privacy.proof import PRIME

    if total.proof % PRIME != proof_of_change(secret, common, total, again):
        raise PrivacyError(
            f"The sum of round {common.t} is not what the owners added up, or they did not all "
            "start from the same classifier. The server, or something on the way, altered it. "
            "Nothing was sent."
        )


def check_guide(common: Common, total: Change, guide: Mapping[str, Tensor]) -> None:
    """Refuse a guide from the server that does not follow from the sum."""
    own = common.guide(total)
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
