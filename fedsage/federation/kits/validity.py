"""How long a party's certificate is valid."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509

from fedsage.errors import ConfigError
from fedsage.federation.kits.kit import Kit
from fedsage.readable import counted

ROOT = "rootCA.pem"  # the certificate of the authority
SOON = 30  # days before the end of a certificate


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
