"""Who belongs to a federation: a list that its authority signs, and that only grows newer.

The coordinator's jobs carry the list. Every party checks the signature against the authority of
its own kit and keeps the newest list, so nobody can bring a removed owner back.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from fedsage.errors import PrivacyError
from fedsage.federation.kits.certificates import PADDING, ROOT
from fedsage.federation.kits.kit import FEDERATION, OURS
from fedsage.files import write_json

MEMBERS = "members"  # the list in federation.json


@dataclass(frozen=True, slots=True)
class Members:
    """The owners of a federation from a certain change on."""

    version: int
    owners: list[str]  # in the order of their numbers
    removed: list[str]  # their names are not given again
    signature: str = ""  # of the authority, over the rest

    @property
    def signed(self) -> bytes:
        """What the signature is of."""
        told = {key: value for key, value in asdict(self).items() if key != "signature"}
        return b"members of a federation\n" + json.dumps(told, sort_keys=True).encode()


def as_text(members: Members) -> str:
    """A list as parties pass it on: letters and digits only, which no engine interprets."""
    return base64.urlsafe_b64encode(json.dumps(asdict(members)).encode()).decode()


def in_text(text: str) -> Members:
    """The list in a text, signed or not."""
    return Members(**json.loads(base64.urlsafe_b64decode(text.encode())))


def members_in(text: str, root: x509.Certificate) -> Members:
    """A list that the authority signed; refuses any other."""
    key = root.public_key()
    assert isinstance(key, RSAPublicKey)  # as NVFlare makes them
    try:
        found = in_text(text)
        key.verify(bytes.fromhex(found.signature), found.signed, PADDING, SHA256())
    except (InvalidSignature, ValueError, TypeError):
        raise PrivacyError(
            "The list of members was not signed by this federation's authority. Nothing was "
            "changed."
        ) from None
    return found


def known_members(about: dict[str, Any]) -> Members:
    """The newest list that a party has; before the first change, that of its kit."""
    if MEMBERS in about:
        return in_text(about[MEMBERS])
    return Members(0, list(about["owners"]), [])


def take_members(kit: Path, text: str) -> Members:
    """Keep a list if it is newer than the one that a kit has; returns the one it has now."""
    file = kit / OURS / FEDERATION
    about = json.loads(file.read_text())
    before = known_members(about)
    if not text:
        return before
    root = x509.load_pem_x509_certificate((kit / "startup" / ROOT).read_bytes())
    found = members_in(text, root)
    if found.version <= before.version:
        return before
    write_json(file, about | {"owners": found.owners, MEMBERS: text})
    return found
