"""Keys, shared secrets and shares of secrets: what masks are made of.

All of it is from ``cryptography`` (X25519, Ed25519, HKDF, ChaCha20) and ``shamirs``. A secret
is a number below 2¹²⁷ − 1, so that owners can be given shares of it.
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


def new_secret() -> int:
    """A number that nobody can guess."""
    return secrets.randbelow(PRIME)


def derived(secret: bytes, about: str) -> bytes:
    """A key of 32 bytes for one purpose."""
    return HKDF(SHA256(), 32, None, about.encode()).derive(secret)


def private_key(secret: int) -> X25519PrivateKey:
    """The private key that a secret stands for."""
    return X25519PrivateKey.from_private_bytes(derived(in_bytes(secret), "a private key"))


def public_key(secret: int) -> bytes:
    """The public key to it."""
    return private_key(secret).public_key().public_bytes_raw()


def agreed(secret: int, public: bytes, about: str) -> bytes:
    """The key that two parties have in common, who know each other's public keys."""
    found = private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    return derived(found, about)


def in_bytes(secret: int) -> bytes:
    """A secret, or a share of one, as bytes."""
    return secret.to_bytes(SIZE, "big")


def split(secret: int, people: int, threshold: int) -> list[int]:
    """A share for each: ``threshold`` of them know the secret, and fewer know nothing of it."""
    if people == 1:
        return [secret]
    shares = shamirs.shares(secret, quantity=people, modulus=PRIME, threshold=threshold)
    return [int(share.value) for share in shares]


def joined(shares: Mapping[int, int], people: int, threshold: int) -> int:
    """The secret of which these are shares, by who holds them, counted from 0."""
    if len(shares) < threshold:
        raise PrivacyError(f"{len(shares)} shares of a secret, where {threshold} are needed.")
    if people == 1:
        return shares[0]
    some = sorted(shares.items())[:threshold]
    points = [shamirs.share(place + 1, value, PRIME) for place, value in some]
    return int(shamirs.interpolate(points, threshold=threshold))


def sealed(key: bytes, text: bytes, about: str) -> str:
    """The text for the other holder of the key alone, in letters."""
    nonce = secrets.token_bytes(NONCE)
    return (nonce + ChaCha20Poly1305(key).encrypt(nonce, text, about.encode())).hex()


def unsealed(key: bytes, box: str, about: str) -> bytes:
    """The inverse of ``sealed``; refuses what was altered or is about something else."""
    try:
        found = bytes.fromhex(box)
        return ChaCha20Poly1305(key).decrypt(found[:NONCE], found[NONCE:], about.encode())
    except (ValueError, InvalidTag):
        raise PrivacyError(
            f"What another owner sent ({about}) was altered on its way. Nothing was sent."
        ) from None


def signed(secret: int, text: bytes) -> str:
    """A signature under a text, in letters."""
    return signing_key(secret).sign(text).hex()


def signing_key(secret: int) -> Ed25519PrivateKey:
    """The key for signatures that a secret stands for."""
    return Ed25519PrivateKey.from_private_bytes(derived(in_bytes(secret), "a signing key"))


def verifying_key(secret: int) -> str:
    """By which others know its signatures."""
    return signing_key(secret).public_key().public_bytes_raw().hex()


def is_signed(public: str, text: bytes, signature: str) -> bool:
    """Whether a signature is right."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def threshold_of(people: int, of: int | None = None) -> int:
    """How many must stay: a third, rounded down, may vanish.

    Where they are the neighbors of one among many (``of``), chance may take more of them: then
    more than half must stay, which is the least that keeps two stories apart.
    """
    return people - people // 3 if of is None or of == people else people // 2 + 1


def circle(members: Sequence[int], seed: bytes, reach: int) -> dict[int, list[int]]:
    """Who masks with whom: all with all, or in large circles each with ``reach`` on each side.

    The circle's order is drawn from ``seed``. Everybody's list is sorted, without itself.
    """
    if len(members) <= 2 * reach + 1:
        return {i: sorted(j for j in members if j != i) for i in members}
    order = sorted(members, key=lambda i: derived(seed, f"place of {i}"))
    count = len(order)
    return {
        i: sorted(order[(k + step) % count] for step in range(-reach, reach + 1) if step)
        for k, i in enumerate(order)
    }
