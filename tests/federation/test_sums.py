"""Hidden sums between parties: the same model, certificates that count, and resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsage.config import Config
from fedsage.data.owned import load_owners
from fedsage.engines.simulated import known_keys
from fedsage.errors import PrivacyError
from fedsage.federation.consent.policy import read_policy
from fedsage.federation.coordinator.privacy_level import with_level
from fedsage.federation.kits.certificates import Certified
from fedsage.federation.kits.kit import federation_of
from fedsage.federation.kits.make import make_kits, secret_of
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.protocol.wire import decode
from fedsage.runs.events import HistoryLine, Stopwatch, ignore_event
from fedsage.runs.execute import Given, execute, run_config
from tests.federation.conftest import NAMES, SiteEngine, Stop, config_for, into, stop_after
from tests.small import traffic_of

Make = Callable[[], list[Site]]
SUMS = {"level": "sums"}


def sums_for(method: str) -> Config:
    return config_for(method, traffic=traffic_of("low-rank", rank=1), privacy=SUMS)


SLOWER = [
    pytest.param(one, marks=pytest.mark.slow)
    for one in ("fedsage", "fedsage+classes", "fedsage+neighgen")
]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+subspace", *SLOWER])
def test_the_model_is_the_one_of_an_open_run_in_one_process(
    method: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    config = sums_for(method)
    engine = SiteEngine(sites())
    there = serve(config, engine, NAMES, "r", "1.0", tmp_path / "server", ignore_event)
    data = config.data.model_copy(update={"dataset": str(hospitals)})
    open_run = config.privacy.model_copy(update={"level": "open"})
    here = run_config(config.model_copy(update={"data": data, "privacy": open_run}))
    assert there.record.model_sha256 == here.record.model_sha256
    assert there.record.accuracy["local"] == pytest.approx(here.record.accuracy["local"])
    assert there.record.privacy["level"] == "sums"
    assert there.record.graph["nodes"] == here.record.graph["nodes"]
    assert all(line.nodes is None and line.local is None for line in there.record.per_owner)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "nodes"), [("fedsage", 1), ("fedsage+copy", 1), ("fedsage+subspace", 32)]
)
def test_nobody_s_number_of_nodes_is_told(
    method: str, nodes: int, sites: Make, tmp_path: Path
) -> None:
    everyone = sites()
    config = sums_for(method)
    few = config.mend.model_copy(update={"rank": 4})
    engine = SiteEngine(everyone)
    serve(
        config.model_copy(update={"mend": few}), engine, NAMES, "r", "1.0", tmp_path / "s",
        ignore_event,
    )  # fmt: skip
    first = [frame for _, frame in engine.frames[3:6]]
    told = [decode(Site.agree.reply, frame) for frame in first]
    assert {one.nodes for one in told} == {nodes} and {one.weight for one in told} == {0.0}
    sizes = [site.owned.num_nodes for site in everyone]
    assert min(sizes) > 32


@pytest.mark.slow
def test_owners_with_few_test_nodes_tell_nothing_about_them(
    sites: Make, tmp_path: Path
) -> None:
    """Not even all together: then the run has no accuracy on test nodes."""
    found = []
    for few in (0, 1, 3):
        everyone = sites()
        for site in everyone[:few]:
            rules = {**site.policy.rules, "fewest.test_nodes": 10**6}
            site._policy = replace(site.policy, rules=rules)
        folder, engine = tmp_path / str(few), SiteEngine(everyone)
        for site in everyone:
            site.runs = folder / site.name
        found.append(
            serve(sums_for("fedsage"), engine, NAMES, "r", "1.0", folder / "s", ignore_event)
        )
    assert len({one.record.model_sha256 for one in found}) == 1
    every, some, none = [one.record.accuracy["local"] for one in found]
    assert every is not None and some is not None and every != some
    assert not none


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_from_the_last_round(
    sites: Make, tmp_path: Path
) -> None:
    config = sums_for("fedsage+subspace")
    whole: list[HistoryLine] = []
    wanted = serve(
        config, SiteEngine(sites()), NAMES, "whole", "1.0", tmp_path / "w", into(whole)
    )
    folder = tmp_path / "server"
    with pytest.raises(Stop):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(2))
    lines: list[HistoryLine] = []
    again = serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, into(lines))
    assert again.record.model_sha256 == wanted.record.model_sha256
    assert [line.loss for line in lines] == [line.loss for line in whole]


@pytest.mark.slow
def test_what_leaves_says_that_sums_are_hidden(sites: Make, tmp_path: Path) -> None:
    serve(
        sums_for("fedsage"),
        SiteEngine(sites()),
        NAMES,
        "r",
        "1.0",
        tmp_path / "s",
        ignore_event,
    )
    words = (tmp_path / "east" / "r" / "what-leaves.txt").read_text()
    assert "The server sees sums over owners and nothing of yours alone" in words
    assert "for each owner separately" not in words


def test_a_site_without_a_certificate_does_not_join(sites: Make, tmp_path: Path) -> None:
    everyone = sites()
    everyone[1].identity = None
    with pytest.raises(PrivacyError, match="no certificate"):
        serve(
            sums_for("fedsage"), SiteEngine(everyone), NAMES, "r", "1.0", tmp_path / "s",
            ignore_event,
        )  # fmt: skip


def test_hidden_is_what_a_federation_is_if_nobody_says() -> None:
    said: list[str] = []
    assert with_level(config_for("fedsage+subspace"), said.append).privacy.level == "sums"
    assert not said
    full = config_for("fedsage", traffic={"how": "full"})
    assert with_level(full, said.append).privacy.level == "open"
    assert "will see each owner's replies" in said[0] and "traffic.how" in said[0]
    few = {"traffic": traffic_of("low-rank")}
    assert (
        with_level(config_for("fedsage+neighgen", **few), said.append).privacy.level == "sums"
    )
    partners = config_for("fedsage+neighgen", neighgen={"partners": 1}, **few)
    assert with_level(partners, said.append).privacy.level == "open"
    assert "neighgen.partners is 1" in said[-1]
    two = config_for("fedsage", data={"owners": 2})
    assert with_level(two, said.append).privacy.level == "open"
    asked = config_for("fedsage", data={"owners": 2}, privacy=SUMS)
    assert with_level(asked, said.append).privacy.level == "sums"
    assert "each can subtract its own part" in said[-1]


@pytest.mark.slow
def test_signatures_are_those_of_the_kits(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    kits = {kit.name: kit for kit in make_kits("localhost:8102", NAMES, tmp_path / "kits")}
    other = {kit.name: kit for kit in make_kits("localhost:8102", NAMES, tmp_path / "other")}
    owners = federation_of(kits["east"])["owners"]
    east, north = (Certified(kits[n].path / "startup", owners) for n in ("east", "north"))
    forged = Certified(other["east"].path / "startup", owners)
    text = b"keys of the run"
    i = owners.index("east")
    north.check(i, east.certificate, text, east.sign(text))
    wrong = {
        "another federation's": (i, forged.certificate, text, forged.sign(text)),
        "another owner's": (owners.index("west"), east.certificate, text, east.sign(text)),
        "another text": (i, east.certificate, b"other keys", east.sign(text)),
        "no certificate": (i, "", text, east.sign(text)),
        "nobody": (7, east.certificate, text, east.sign(text)),
        "the server's": (i, kits["server"].path.joinpath("startup/server.crt").read_text(),
                         text, east.sign(text)),
    }  # fmt: skip
    for case in wrong.values():
        with pytest.raises(PrivacyError, match="is not valid"):
            north.check(*case)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedsage+shared", "fedsage+classes"])
def test_owners_draw_by_secrets_that_a_server_does_not_know(
    method: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    """The same secrets give the same model in one process, others another one."""
    config = sums_for(method)
    secrets = ["of east", "of north", "of west"]

    def between(name: str, known: list[str]) -> str:
        everyone = sites()
        for site, secret in zip(everyone, known, strict=True):
            site.secret = secret
        where = tmp_path / name
        done = serve(config, SiteEngine(everyone), NAMES, name, "1.0", where, ignore_event)
        return done.record.model_sha256

    owners = load_owners(str(hospitals))
    given = Given(secrets=secrets)
    here = execute(config, owners, None, Stopwatch(ignore_event), given=given)
    assert between("same", secrets) == here.record.model_sha256
    assert between("other", ["", "of north", "of west"]) != here.record.model_sha256


@pytest.mark.slow
def test_every_kit_has_a_secret_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    kits = make_kits("localhost:8102", NAMES, tmp_path / "kits")
    found = {kit.name: secret_of(kit.ours) for kit in kits}
    assert all(len(found[name]) == 64 for name in NAMES)
    assert len({found[name] for name in NAMES}) == 3
    assert not found["server"] and not found["coordinator"]
    for kit in [kit for kit in kits if kit.role == "owner"]:
        assert (kit.ours / "secret").stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "levels"),
    [(NAMES, {"sums", "private"}), (NAMES[:2], {"open", "sums", "private"})],
)
def test_kits_of_three_owners_insist_on_sums(
    names: tuple[str, ...], levels: set[str], tmp_path: Path
) -> None:
    """Else a server could simply ask for less."""
    pytest.importorskip("nvflare")
    kits = make_kits("localhost:8102", names, tmp_path / "kits")
    owners = [read_policy(kit.path) for kit in kits if kit.role == "owner"]
    assert len(owners) == len(names)
    assert all(set(policy.rules["privacy"]) == levels for policy in owners)


def test_a_sum_of_fewer_than_two_thirds_is_not_taken_part_in(
    sites: Make, tmp_path: Path
) -> None:
    """Two thirds of those in its kit, whatever number the server's settings have."""
    everyone = sites()
    known = known_keys(range(9))
    for i, site in enumerate(everyone):
        site.identity = known[i]
    engine = SiteEngine(everyone)
    with pytest.raises(PrivacyError, match="takes part only with 6 or more"):
        serve(sums_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
