"""Who belongs to a federation: added, removed, renewed; what a removed owner can still do."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.kits.certificates import Certified, ending_soon
from fedsage.federation.kits.kit import Kit, federation_of, open_kit
from fedsage.federation.kits.members import (
    MEMBERS,
    Members,
    as_text,
    known_members,
    take_members,
)
from tests.federation.test_federation import OWNERS, config_on, federated, party, quiet

pytest.importorskip("nvflare")
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.federation.kits.authority import (
    Authority,
    add_owner,
    remove_owner,
    renew,
    rotate_authority,
)
from fedsage.federation.kits.make import make_kits
from fedsage.federation.processes.start import start, stop
from fedsage.federation.status.status import GONE, stored


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "kits"
    make_kits("localhost:8111", ["east", "north", "west"], folder)
    return folder


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "kits"))


def owners_at(kits: Path, name: str) -> list[str]:
    return list(federation_of(open_kit(kits / name))["owners"])


def list_at(kits: Path, name: str) -> str:
    return str(federation_of(open_kit(kits / name))[MEMBERS])


def fits(kits: Path, reader: str, other: str) -> str | None:
    """Why one party would not believe a signature of another, or None."""
    names = owners_at(kits, reader)
    one, two = (Certified(kits / name / "startup", names) for name in (reader, other))
    return one.wrong(other, two.certificate, b"text", two.sign(b"text"))


@pytest.mark.slow
def test_an_owner_is_added_with_the_next_number_and_certificates_that_fit(kits: Path) -> None:
    kit = add_owner(kits, "amber")
    assert kit.role == "owner" and (kit.path / "local" / "policy.toml").exists()
    for name in ("coordinator", "server", "east", "amber"):
        assert owners_at(kits, name) == ["east", "north", "west", "amber"]
    assert fits(kits, "east", "amber") is None and fits(kits, "amber", "east") is None
    with pytest.raises(ConfigError, match="different names"):
        add_owner(kits, "east")


@pytest.mark.slow
def test_a_removed_owner_is_believed_by_nobody_and_its_name_is_not_given_again(
    kits: Path,
) -> None:
    before = Certified(kits / "east" / "startup", owners_at(kits, "east"))
    removed = Certified(kits / "north" / "startup", before.names)
    before.check(1, removed.certificate, b"text", removed.sign(b"text"))
    remove_owner(kits, "north")
    assert owners_at(kits, "server") == owners_at(kits, "east") == ["east", "west"]
    after = Certified(kits / "east" / "startup", owners_at(kits, "east"))
    for number in range(3):
        with pytest.raises(PrivacyError, match="is not valid"):
            after.check(number, removed.certificate, b"text", removed.sign(b"text"))
    with pytest.raises(ConfigError, match="was removed"):
        add_owner(kits, "north")
    rotate_authority(kits)
    assert fits(kits, "east", "west") is None
    assert fits(kits, "east", "north") is not None, "also not by its old certificate"


@pytest.mark.slow
def test_nobody_brings_a_removed_owner_back(kits: Path) -> None:
    """With a list of an earlier time, one of its own making, or one that was changed."""
    add_owner(kits, "amber")
    earlier = list_at(kits, "east")
    remove_owner(kits, "amber")
    assert take_members(kits / "east", earlier).owners == ["east", "north", "west"]
    now = known_members(federation_of(open_kit(kits / "east")))
    forged = replace(now, version=99, owners=[*now.owners, "amber"])
    own = replace(
        forged, signature=Certified(kits / "west" / "startup", []).sign(forged.signed)
    )
    for hostile in (forged, own, Members(99, ["amber"], [])):
        with pytest.raises(PrivacyError, match="not signed by this federation's authority"):
            take_members(kits / "east", as_text(hostile))
    for text in ("[]", "{}", '{"version": 9}', "no JSON"):
        with pytest.raises(PrivacyError, match="not signed"):
            take_members(kits / "east", text)
    assert owners_at(kits, "east") == ["east", "north", "west"]


@pytest.mark.slow
def test_renewed_certificates_fit_old_ones_and_keys_stay(kits: Path) -> None:
    key = (kits / "east" / "startup" / "client.key").read_bytes()
    old = (kits / "west" / "startup" / "client.crt").read_bytes()
    handed_out = renew(kits, days=20)
    assert {one.name for one in handed_out} == {
        "server",
        "coordinator",
        "east",
        "north",
        "west",
    }
    assert not [file for one in handed_out for file in one.glob("*.key")]
    assert (kits / "east" / "startup" / "client.key").read_bytes() == key
    assert "ends in 19 days" in (ending_soon(open_kit(kits / "east")) or "")
    (kits / "west" / "startup" / "client.crt").write_bytes(old)  # west has not renewed yet
    assert fits(kits, "east", "west") is None and fits(kits, "west", "east") is None
    renew(kits)
    assert ending_soon(open_kit(kits / "east")) is None
    server = x509.load_pem_x509_certificate((kits / "server/startup/server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    server.verify_directly_issued_by(Authority(kits).root)
    assert (kits / "authority" / "cert.json").stat().st_mode & 0o077 == 0


@pytest.fixture(scope="module")
def coordinator(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    folder = tmp_path_factory.mktemp("members") / "keep"
    with rehearsal(config_on(hospitals, "fedsage"), folder, quiet) as kit:
        yield kit


def sees_the_server(kit: Kit) -> bool:
    return stored(kit.ours)[1] <= GONE


def connects(kit: Kit, data: Path | None, seconds: float) -> bool:
    """Whether a party that is started gets connected."""
    start(kit, data, quiet, wait=False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if sees_the_server(kit):
            return True
        time.sleep(0.2)
    return False


@pytest.mark.federation
def test_members_change_while_the_server_runs(
    coordinator: Kit, hospitals: Path, tmp_path: Path
) -> None:
    """A removed kit is refused; a renewed and an added one are let in, and they train."""
    kits = coordinator.path.parent
    removed = party(coordinator, OWNERS[2])
    assert sees_the_server(removed), "it was let in before"
    remove_owner(kits, OWNERS[2])
    stop(removed)
    assert not connects(removed, None, 20)
    stop(removed)
    renew(kits)
    stop(party(coordinator, OWNERS[1]))
    assert connects(party(coordinator, OWNERS[1]), None, 60)
    added = add_owner(kits, "newcomer")
    shutil.copy(kits / OWNERS[0] / "local" / "policy.toml", added.path / "local")
    try:
        assert connects(added, hospitals / "west", 60)
        record = federated(coordinator, config_on(hospitals, "fedsage"), tmp_path / "run")
    finally:
        stop(added)
    assert record.owners == 3 and record.missed == 0
    assert owners_at(kits, OWNERS[0]) == [OWNERS[0], OWNERS[1], "newcomer"]


@pytest.mark.slow
def test_files_in_the_current_folder_do_not_decide_how_the_coordinator_connects(
    kits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare would take the first ``comm_config.json`` anywhere below the current folder."""
    from nvflare.fuel.f3.comm_config import CommConfigurator
    from nvflare.fuel.utils.config_service import ConfigService

    from fedsage.federation.coordinator.session import Unreachable, session

    planted = tmp_path / "downloads" / "deep"
    planted.mkdir(parents=True)
    (planted / "comm_config.json").write_text('{"allow_adhoc_conns": true}')
    monkeypatch.chdir(tmp_path / "downloads")
    monkeypatch.setattr(ConfigService, "_config_path", [])
    CommConfigurator.reset()
    assert CommConfigurator().config == {"allow_adhoc_conns": True}  # the attack
    CommConfigurator.reset()
    with pytest.raises(Unreachable), session(open_kit(kits / "coordinator"), timeout=0.1):
        pass
    assert CommConfigurator().config is None
