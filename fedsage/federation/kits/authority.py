"""A federation's authority: it adds and removes owners, and renews certificates.

It is the folder ``authority`` that ``federation init`` wrote. Whoever holds it decides who
belongs to the federation. Private keys are made once: what is renewed are certificates, which
are no secret.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedsage.errors import ConfigError
from fedsage.federation.kits.certificates import PADDING, ROOT
from fedsage.federation.kits.kit import COORDINATOR, Kit, federation_of, open_kit
from fedsage.federation.kits.make import checked_names, provisioned, settled_kit
from fedsage.federation.kits.members import Members, as_text, known_members, take_members
from fedsage.files import write_atomically

AUTHORITY, STATE, RENEWED = "authority", "cert.json", "renewed"
DAYS = 360  # that a certificate is valid
ROOT_CERT, ROOT_KEY = "root_cert", "root_pri_key"  # in the authority's state


class Authority:
    """The authority in a folder of kits, with its key.

    Args:
        kits: The folder that ``federation init`` wrote.
    """

    def __init__(self, kits: Path) -> None:
        self.kits, self.folder = kits, kits / AUTHORITY
        try:
            self.state: dict[str, Any] = json.loads((self.folder / STATE).read_text())
        except (OSError, ValueError):
            raise ConfigError(
                f"{kits} holds no authority. Give the folder that 'fedsage federation init' "
                "wrote, with its folder 'authority'."
            ) from None
        self.coordinator = open_kit(kits / "coordinator")
        self.about = federation_of(self.coordinator)

    @property
    def root(self) -> x509.Certificate:
        """The certificate that all others are signed with."""
        return x509.load_pem_x509_certificate(self.state[ROOT_CERT].encode())

    @property
    def key(self) -> rsa.RSAPrivateKey:
        """Its private key."""
        found = load_pem_private_key(self.state[ROOT_KEY].encode(), None)
        assert isinstance(found, rsa.RSAPrivateKey)
        return found

    def keep(self) -> None:
        """Store the state, for nobody else's eyes."""
        before = os.umask(0o077)
        try:
            text = json.dumps(self.state).encode()
            write_atomically(self.folder / STATE, lambda file: file.write(text))
        finally:
            os.umask(before)

    def parties(self) -> Iterator[tuple[str, str]]:
        """The subject of every certificate in use, and the name of the party's kit."""
        yield self.about["host"], "server"
        yield COORDINATOR, "coordinator"
        for name in known_members(self.about).owners:
            yield name, name


def add_owner(kits: Path, name: str) -> Kit:
    """Make a kit for one more owner; returns it. Its number follows those of all others."""
    authority = Authority(kits)
    before = known_members(authority.about)
    checked_names([*before.owners, name])
    if name in before.removed:
        raise ConfigError(
            f"Owner '{name}' was removed, and its certificate still exists. Choose another "
            "name, or make a new authority first ('fedsage federation rotate-authority')."
        )
    if (kits / name).exists():
        raise ConfigError(f"{kits / name} already exists. Choose another name.")
    host, port = authority.about["host"], authority.about["port"]
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "work" / "fedsage" / "state"
        shutil.copytree(authority.folder, state)
        made = provisioned(host, port, [name], Path(scratch))
        found = json.loads((state / STATE).read_text())
        authority.state[name] = found[name]
        authority.keep()
        shutil.move(made / name, kits / name)
    about = {key: authority.about[key] for key in ("server", "host", "port", "owners")}
    after = replace(before, version=before.version + 1, owners=[*before.owners, name])
    kit = settled_kit(open_kit(kits / name), about | {"owners": after.owners})
    spread(authority, after)
    return kit


def remove_owner(kits: Path, name: str) -> None:
    """Take an owner out of the federation; its certificate is refused from now on."""
    authority = Authority(kits)
    before = known_members(authority.about)
    if name not in before.owners:
        there = ", ".join(before.owners)
        raise ConfigError(f"There is no owner '{name}' in this federation, only {there}.")
    if len(before.owners) == 1:
        raise ConfigError(f"'{name}' is the only owner. A federation needs at least one.")
    owners = [one for one in before.owners if one != name]
    spread(authority, Members(before.version + 1, owners, [*before.removed, name]))


def spread(authority: Authority, members: Members) -> None:
    """Sign a list, and put it into every kit that is here; other parties get it by a run."""
    signature = authority.key.sign(members.signed, PADDING, SHA256()).hex()
    text = as_text(replace(members, signature=signature))
    for name in ("coordinator", "server", *members.owners):
        if (authority.kits / name / "startup").is_dir():
            take_members(authority.kits / name, text)


def renew(kits: Path, days: int = DAYS) -> list[Path]:
    """Sign all certificates again with the same keys; returns the folders to hand out.

    Old and new ones fit each other, so no party has to be stopped.
    """
    return reissue(Authority(kits), days)


def rotate_authority(kits: Path, days: int = DAYS) -> list[Path]:
    """Make a new authority; what the old one signed is refused once parties have the new."""
    authority = Authority(kits)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    authority.state[ROOT_KEY] = key.private_bytes(*form).decode()
    before = known_members(authority.about)
    found = reissue(authority, days)
    for name in before.removed:
        authority.state.pop(name, None)
    authority.keep()
    spread(authority, Members(before.version + 1, before.owners, []))
    return found


def reissue(authority: Authority, days: int) -> list[Path]:
    """New certificates for the authority and every party, with the parties' own keys."""
    key, root = authority.key, signed_anew(authority.root, authority.root, authority.key, days)
    authority.state[ROOT_CERT] = pem(root)
    found = []
    for subject, name in authority.parties():
        held = authority.state[subject]
        before = x509.load_pem_x509_certificate(held["cert"].encode())
        held["cert"] = pem(signed_anew(before, root, key, days))
        file = "server.crt" if name == "server" else "client.crt"
        texts = {file: held["cert"], ROOT: authority.state[ROOT_CERT]}
        found.append(authority.kits / RENEWED / name)
        places = [found[-1]]
        if (startup := authority.kits / name / "startup").is_dir():
            places.append(startup)
        for place in places:
            for one, text in texts.items():
                body = text.encode()
                write_atomically(place / one, lambda file, body=body: file.write(body))  # type: ignore[misc]
    authority.keep()
    return found


def signed_anew(
    before: x509.Certificate, root: x509.Certificate, key: rsa.RSAPrivateKey, days: int
) -> x509.Certificate:
    """The same certificate for the next ``days``, signed with ``key``."""
    now = datetime.datetime.now(datetime.timezone.utc)
    begin = now - datetime.timedelta(hours=1)  # for clocks that are late
    itself = before.subject == before.issuer
    public = key.public_key() if itself else before.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    made = (
        x509.CertificateBuilder()
        .subject_name(before.subject)
        .issuer_name(root.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    ours = (x509.SubjectKeyIdentifier.oid, x509.AuthorityKeyIdentifier.oid)
    for one in before.extensions:
        if one.oid not in ours:
            made = made.add_extension(one.value, one.critical)
    return made.sign(key, SHA256())


def pem(certificate: x509.Certificate) -> str:
    """A certificate as text."""
    return certificate.public_bytes(Encoding.PEM).decode()
