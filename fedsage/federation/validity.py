"""How long a party's certificate is valid."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509

from fedsage.errors import ConfigError
from fedsage.federation.kit import Kit


def own_certificate(kit: Kit) -> Path:
    """The file of a party's certificate."""
    name = "server.crt" if kit.role == "server" else "client.crt"
    return kit.path / "startup" / name


def check_certificate(kit: Kit) -> None:
    """Refuse a certificate that is not valid today."""
    for file in (own_certificate(kit), kit.path / "startup" / "rootCA.pem"):
        try:
            found = x509.load_pem_x509_certificate(file.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{file} is not a certificate ({error}). Make new kits."
            ) from None
        today = datetime.datetime.now(datetime.timezone.utc)
        first, last = found.not_valid_before_utc, found.not_valid_after_utc
        if not first <= today <= last:
            raise ConfigError(
                f"{file} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and today is "
                f"{today:%Y-%m-%d}. Make new kits with 'fedsage federation init' and give them "
                "to all parties; owners can keep their folders of runs."
            )


def certificate_days(kit: Kit) -> int | None:
    """Whole days until this party's certificate ends; None if it cannot be read."""
    try:
        found = x509.load_pem_x509_certificate(own_certificate(kit).read_bytes())
    except (OSError, ValueError):
        return None
    return (found.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)).days
