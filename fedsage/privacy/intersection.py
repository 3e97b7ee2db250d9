"""Private set intersection by Diffie–Hellman: which ids two parties both have.

An id becomes a point of Curve25519 by its hash. Each party multiplies points by a secret of
its own, and the order does not matter: points that both multiplied are equal where the ids
are, and nobody can tell an id from a point that the other one multiplied. X25519 takes any 32
bytes for a point, on the curve or on its twist, which is as strong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import digest

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from jaxtyping import Int8

from fedsage.errors import PrivacyError
from fedsage.shapes import Array

SIZE = 32  # bytes of a point, or of a tag
Points = Int8[Array, "n 32"]


def new_blind() -> X25519PrivateKey:
    """The secret of one party, for one exchange."""
    return X25519PrivateKey.generate()


def hashed(ids: Iterable[str], about: str) -> list[bytes]:
    """A point for each id; other ones in every run."""
    start = sha256(about.encode() + b"\0")
    found = []
    for one in ids:
        hasher = start.copy()
        hasher.update(one.encode())
        found.append(hasher.digest())
    return found


def blinded(points: Iterable[bytes], blind: X25519PrivateKey) -> list[bytes]:
    """The points, each multiplied by a party's secret."""
    try:
        return [blind.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]
    except ValueError:
        raise PrivacyError(
            "Another owner sent a point that would show this owner's secret. Nothing was sent."
        ) from None


def tags(links: Iterable[tuple[str, str]], key: bytes) -> list[bytes]:
    """A keyed hash for each link, the same at both ends; needs the key of the two owners."""
    return [digest(key, "\0".join(sorted(ends)).encode(), "sha256") for ends in links]


def packed(points: Sequence[bytes]) -> Points:
    """Points or tags in the form in which they are sent."""
    return np.frombuffer(b"".join(points), np.int8).reshape(-1, SIZE)


def unpacked(found: Points) -> list[bytes]:
    """The inverse of ``packed``."""
    raw = np.ascontiguousarray(found).tobytes()
    return [raw[at : at + SIZE] for at in range(0, len(raw), SIZE)]
