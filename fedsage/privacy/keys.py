"""Keys, shared secrets and shares of secrets: the building blocks of masks.

Everything is from ``cryptography`` (X25519, Ed25519, HKDF, ChaCha20) and ``shamirs``. A secret
is a number below 2¹²⁷ − 1, so that owners can hold shares of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import shamirs
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsage.errors import PrivacyError

PRIME = 2**127 - 1
SIZE = 16  # bytes of a secret, or of a share of one
NONCE = 12
PUBLIC = 32  # bytes of a public key
TRIAL = X25519PrivateKey.generate()  # to try whether others' keys are keys


def new_secret() -> int:
    """A number that nobody can guess."""
    return secrets.randbelow(PRIME)


def derived(secret: bytes, about: str) -> bytes:
    """A key of 32 bytes for one purpose."""
    return HKDF(SHA256(), 32, None, about.encode()).derive(secret)


def private_key(secret: int) -> X25519PrivateKey:
    """The private key made from a secret."""
    return X25519PrivateKey.from_private_bytes(derived(in_bytes(secret), "a private key"))


def public_key(secret: int) -> bytes:
    """The public key that belongs to a secret."""
    return private_key(secret).public_key().public_bytes_raw()


def agreed(secret: int, public: bytes, about: str) -> bytes:
    """The common key of two parties that know each other's public keys."""
    found = private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    return derived(found, about)


def is_key(public: bytes) -> bool:
    """Whether two parties can agree on a key with it."""
    try:
        TRIAL.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def in_bytes(secret: int) -> bytes:
    """A secret, or a share of one, as bytes."""
    return secret.to_bytes(SIZE, "big")


def split(secret: int, people: int, threshold: int) -> list[int]:
    """A share for each: ``threshold`` shares give the secret, fewer reveal nothing about it."""
    if people == 1:
        return [secret]
    shares = shamirs.shares(secret, quantity=people, modulus=PRIME, threshold=threshold)
    return [int(share.value) for share in shares]


def joined(shares: Mapping[int, int], people: int, threshold: int) -> int:
    """The secret with these shares, by the number of their holder, counted from 0."""
    if len(shares) < threshold:
        raise PrivacyError(f"{len(shares)} shares of a secret, but {threshold} are needed.")
    if people == 1:
        return shares[0]
    some = sorted(shares.items())[:threshold]
    points = [shamirs.share(place + 1, value, PRIME) for place, value in some]
    return int(shamirs.interpolate(points, threshold=threshold))


def fitting(shares: Mapping[int, int], people: int, threshold: int) -> dict[int, int]:
    """Those shares that belong to one secret; at most one may be wrong.

    Of as many as are needed, nobody can tell whether one is wrong; of one more, not which.
    """
    if agree(shares, people, threshold):
        return dict(shares)
    for place in shares:
        rest = {one: value for one, value in shares.items() if one != place}
        if len(rest) > threshold and agree(rest, people, threshold):
            return rest
    raise PrivacyError("Shares of a secret do not fit together.")


def agree(shares: Mapping[int, int], people: int, threshold: int) -> bool:
    """Whether the first shares and the last ones, enough of each, give the same secret."""
    ordered = sorted(shares.items())
    ends = (dict(ordered[:threshold]), dict(ordered[-threshold:]))
    first, last = (joined(some, people, threshold) for some in ends)
    return first == last


def sealed(key: bytes, text: bytes, about: str) -> bytes:
    """The text encrypted for the other holder of the key."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, about.encode())


def unsealed(key: bytes, box: bytes, about: str) -> bytes:
    """The inverse of ``sealed``; refuses what was altered or is about something else."""
    try:
        return ChaCha20Poly1305(key).decrypt(box[:NONCE], box[NONCE:], about.encode())
    except (ValueError, InvalidTag):
        raise PrivacyError(
            f"What another owner sent ({about}) was altered on the way. Nothing was sent."
        ) from None


def signed(secret: int, text: bytes) -> str:
    """A signature for a text, as hexadecimal digits."""
    return signing_key(secret).sign(text).hex()


def signing_key(secret: int) -> Ed25519PrivateKey:
    """The signing key made from a secret."""
    return Ed25519PrivateKey.from_private_bytes(derived(in_bytes(secret), "a signing key"))


def verifying_key(secret: int) -> str:
    """The public key by which others check its signatures."""
    return signing_key(secret).public_key().public_bytes_raw().hex()


def is_signed(public: str, text: bytes, signature: str) -> bool:
    """Whether a signature is valid."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def threshold_of(people: int, of: int | None = None) -> int:
    """How many must stay: a third, rounded down, may vanish.

    If they are one owner's neighbors among many (``of``), more of them may vanish by chance:
    then more than half must stay, the least that exposes a server with two lists of owners.
    """
    return people - people // 3 if of is None or of == people else people // 2 + 1


def circle(members: Sequence[int], seed: bytes, reach: int) -> dict[int, list[int]]:
    """Who masks with whom: all with all or, if many, each with ``reach`` on each side.

    The circle's order is drawn from ``seed``. Each list is sorted, without the owner itself.
    """
    if len(members) <= 2 * reach + 1:
        return {i: sorted(j for j in members if j != i) for i in members}
    order = sorted(members, key=lambda i: derived(seed, f"place of {i}"))
    count = len(order)
    return {
        i: sorted(order[(k + step) % count] for step in range(-reach, reach + 1) if step)
        for k, i in enumerate(order)
    }
