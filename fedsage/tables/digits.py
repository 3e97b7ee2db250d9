"""Numbers as digits whose sums are exact, in whatever order owners are added up.

A number becomes a whole multiple of 2⁻²⁵⁶, and that its digits to the base 2¹⁶, each in 32
bits, so that digits of thousands of owners can be added without a carry.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int, Int32

from fedsage.errors import DataError
from fedsage.shapes import Array

POINT = 256  # bits after the point
BASE = 16  # bits of a digit
DIGITS = 24  # the last one has the sign
LARGEST = 2.0 ** (BASE * DIGITS - POINT - 1)


def digits_of(values: Float64[Array, " n"]) -> Int32[Array, "n digits"]:
    """The digits of every number."""
    if not (np.abs(values) < LARGEST).all():
        raise DataError(
            f"The sum of a column is {np.abs(values).max():.3g}, but must stay below "
            f"{LARGEST:.3g}. Give the column in another unit."
        )
    found = np.empty((len(values), DIGITS), np.int32)
    for row, value in enumerate(values.tolist()):
        whole = int(math.ldexp(value, POINT)) if value else 0
        for place in range(DIGITS - 1):
            found[row, place] = whole >> BASE * place & (2**BASE - 1)
        found[row, -1] = whole >> BASE * (DIGITS - 1)
    return found


def numbers_of(digits: Int[Array, "n digits"]) -> Float64[Array, " n"]:
    """The inverse; of a sum of digits, the sum, rounded once."""
    wholes = [
        sum(digit << BASE * place for place, digit in enumerate(row)) for row in digits.tolist()
    ]
    return np.array([whole / 2**POINT for whole in wholes], np.float64)


def exact_sum(parts: list[Float64[Array, " n"]]) -> Float64[Array, " n"]:
    """The sum of several rows of numbers, rounded once."""
    return numbers_of(np.stack([digits_of(part) for part in parts]).sum(axis=0))
