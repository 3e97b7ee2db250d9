"""One epoch of a linear classifier compiled for CPUs: forward, backward, optimizer.

The same formulas as ``models/linear.py`` in training; the tests compare both. Called only
through the door.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsage.kernels.compiling import kept_on_disk
from fedsage.kernels.formulas import add_row_sum, fill_rows, loss_and_gradient, update
from fedsage.kernels.lowlevel import add_rows, spread_row

# mypy: disable-error-code="no-untyped-def"


def with_stamp(stamp: int) -> Any:
    """The epoch, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def epoch(rows, y, weights, firsts, seconds, batch_size, settings):
        """One pass over all rows, one step for each batch; returns the summed loss."""
        indptr, indices, data = rows
        weight, bias = weights
        step, kind, eta, weight_decay = settings
        logits = np.empty((batch_size, len(bias)), np.float32)
        dlogits, gradient = np.empty_like(logits), np.zeros_like(weight)
        dbias = np.zeros_like(bias)
        loss = 0.0
        for begin in range(0, len(y) if stamp > 0 else 0, batch_size):
            b = min(batch_size, len(y) - begin)
            fill_rows(logits, b, bias)
            for i in range(b):
                start, end = indptr[begin + i], indptr[begin + i + 1]
                add_rows(logits, i, indices, data, 0, 1, start, end, weight)
            loss += loss_and_gradient(logits, y, begin, b, dlogits)
            for i in range(b):
                start, end = indptr[begin + i], indptr[begin + i + 1]
                spread_row(dlogits, i, indices, data, 0, 1, start, end, gradient)
            add_row_sum(dbias, dlogits, b)
            step += 1
            how = (step, kind, eta, weight_decay)
            update(weight.ravel(), gradient.ravel(), firsts[0], seconds[0], how)
            update(bias, dbias, firsts[1], seconds[1], how)
        return loss

    return epoch


epoch = kept_on_disk(with_stamp)
