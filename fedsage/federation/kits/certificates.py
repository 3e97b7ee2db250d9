"""Certificates of kits: signatures with them, and how long they are valid."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.kits.kit import Kit
from fedsage.readable import counted

if TYPE_CHECKING:  # the server's main process needs no torch
    from fedsage.protocol.messages import OwnerId

ROOT = "rootCA.pem"  # the certificate of the authority
SOON = 30  # days before the end of a certificate
PADDING = PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)


class Certified:
    """An owner with its kit: signs with its key, and checks others against the kit's authority.

    Args:
        startup: The kit's folder with certificates.
        names: Of all owners of the federation, in the order of their numbers.
    """

    def __init__(self, startup: Path, names: Sequence[str]) -> None:
        self.names = list(names)
        self.certificate = (startup / "client.crt").read_text()
        self.root = x509.load_pem_x509_certificate((startup / ROOT).read_bytes())
        key = load_pem_private_key((startup / "client.key").read_bytes(), None)
        assert isinstance(key, RSAPrivateKey)  # as NVFlare makes them
        self.key = key

    @property
    def owners(self) -> int:
        """How many owners the federation has, according to the kit."""
        return len(self.names)

    def sign(self, text: bytes) -> str:
        """A signature for a text."""
        return self.key.sign(text, PADDING, SHA256()).hex()

    def check(self, owner: OwnerId, certificate: str, text: bytes, signature: str) -> None:
        """Refuse a signature that is not that owner's."""
        name = self.names[owner] if 0 <= owner < len(self.names) else f"number {owner}"
        if why := self.wrong(name, certificate, text, signature):
            raise PrivacyError(
                f"A signature of owner {name} is not valid ({why}). Somebody is between the "
                "parties, or kits are from different federations. Nothing was sent."
            )

    def wrong(self, name: str, certificate: str, text: bytes, signature: str) -> str | None:
        """Why a signature is not that of the owner with this name, or None."""
        try:
            found = x509.load_pem_x509_certificate(certificate.encode())
            found.verify_directly_issued_by(self.root)
            now = datetime.datetime.now(datetime.timezone.utc)
            if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
                return "its certificate has expired or is not valid yet"
            named = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            if [one.value for one in named] != [name]:
                return "its certificate belongs to another party"
            key = found.public_key()
            assert isinstance(key, RSAPublicKey)
            key.verify(bytes.fromhex(signature), text, PADDING, SHA256())
        except (ValueError, TypeError, AssertionError):
            return "it has no certificate of this federation"
        except InvalidSignature:
            return "it does not fit what was signed"
        return None


def own_certificate(kit: Kit) -> Path:
    """The file of a party's certificate."""
    name = "server.crt" if kit.role == "server" else "client.crt"
    return kit.path / "startup" / name


def check_certificate(kit: Kit) -> None:
    """Refuse a certificate that is not valid today."""
    for file in (own_certificate(kit), kit.path / "startup" / ROOT):
        try:
            found = x509.load_pem_x509_certificate(file.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{file} is not a certificate ({error}). Make new kits."
            ) from None
        today = datetime.datetime.now(datetime.timezone.utc)
        first, last = found.not_valid_before_utc, found.not_valid_after_utc
        if today < first:
            raise ConfigError(
                f"{file} is valid from {first:%Y-%m-%d %H:%M} on, but by the clock of this "
                f"machine it is {today:%Y-%m-%d %H:%M} (UTC). Set the clock right, then try "
                "again."
            )
        if today > last:
            raise ConfigError(
                f"{file} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and today is "
                f"{today:%Y-%m-%d}. Whoever holds the authority should use 'fedsage federation "
                "renew' and hand out the new certificates."
            )


def ending_soon(kit: Kit) -> str | None:
    """A warning if the certificate of a party or of its authority ends within 30 days."""
    left = [days_left(file) for file in (own_certificate(kit), kit.path / "startup" / ROOT)]
    days = min((one for one in left if one is not None), default=None)
    if days is None or days > SOON:
        return None
    return (
        f"The certificate of {kit.name} ends in {counted(days, 'day')}. Whoever holds the "
        "authority should use 'fedsage federation renew' before that."
    )


def certificate_days(kit: Kit) -> int | None:
    """Whole days until this party's certificate ends; None if it cannot be read."""
    return days_left(own_certificate(kit))


def days_left(file: Path) -> int | None:
    """Whole days until a certificate ends; None if it cannot be read."""
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None
    return (found.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)).days
