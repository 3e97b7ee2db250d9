"""Links that hospitals know, between owners as they are on separate machines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.errors import FedSageError
from fedsage.federation.coordinator.rehearse import owners_data
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.graph.known_links import RemoteLinks
from fedsage.mending.links.matching import LinkWork
from fedsage.mending.links.memory import ASKED, GAVE, LinkMemory
from fedsage.mending.links.received import HeldMeans
from fedsage.models.classifier import load_models
from fedsage.rng import generator
from fedsage.runs.events import ignore_event
from fedsage.runs.execute import run_config
from fedsage.runs.predictions import csv_of, predictions
from fedsage.runs.stored_graph import load_answering
from tests.federation.conftest import NAMES, TINY, SiteEngine, config_for
from tests.small import traffic_of


@pytest.fixture(scope="module")
def referring(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hospitals, with referrals to each other's patients."""
    root = tmp_path_factory.mktemp("referring")
    stream = generator(0, "referrals")
    for k, name in enumerate(NAMES):
        (root / name).mkdir()
        for file in ("schema.toml", "nodes.csv"):
            text = (hospitals / name / file).read_text()
            lead = 'links = "known"\n' if file == "schema.toml" else ""
            (root / name / file).write_text(lead + text)
        lines = (hospitals / name / "edges.csv").read_text().split()
        lines = [lines[0] + ",owner", *(line + "," for line in lines[1:])]
        for v in range(60):
            for _ in range(3):
                other = (k + int(stream.integers(1, 3))) % 3
                there = f"{NAMES[other]}-{stream.integers(60)}"
                lines.append(f"{name}-{v},{there},{NAMES[other] if v % 2 else ''}")
        (root / name / "edges.csv").write_text("\n".join(dict.fromkeys(lines)) + "\n")
    return root


Make = Callable[[], list[Site]]
LINKED = replace(
    TINY,
    rules=TINY.rules | {"mending": ["links"], "matching": ["intersection", "hashes"]},
)


@pytest.fixture
def parties(referring: Path, tmp_path: Path) -> Make:
    """The same owners, as new processes."""

    def make() -> list[Site]:
        keys = known_keys(range(len(NAMES)))
        return [
            Site(n, read_owned(referring / n), tmp_path / n, "1.0", print, keys[i], LINKED)
            for i, n in enumerate(NAMES)
        ]

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "match"), [("open", "intersection"), ("sums", "intersection"), ("sums", "hashes")]
)
def test_owners_who_know_links_train_the_model_of_one_process(
    referring: Path, parties: Make, tmp_path: Path, level: str, match: str
) -> None:
    config = config_for(
        "fedsage+links",
        traffic=traffic_of("low-rank", rank=1),
        privacy={"level": level},
        links={"match": match},
    )
    engine, server = SiteEngine(parties()), tmp_path / "server"
    there = serve(config, engine, NAMES, "r", "1.0", server, ignore_event)
    data = config.data.model_copy(update={"dataset": str(referring)})
    plain = config.privacy.model_copy(update={"level": "open"})
    here = run_config(config.model_copy(update={"data": data, "privacy": plain}))
    assert there.record.model_sha256 == here.record.model_sha256
    mended = engine.sites[0].keeper.owner.mended
    assert mended is not None
    if match == "intersection":  # few links are known at both ends
        assert mended.num_nodes > 2 * engine.sites[0].owned.num_nodes
    sent = b"".join(frame for _, frame in engine.frames)
    assert not any(f"{name}-{v}".encode() in sent for name in NAMES for v in range(60))
    words = (tmp_path / NAMES[0] / "r" / "what-leaves.txt").read_text()
    assert "letters that only those owners can open" in words
    for folder in (tmp_path / name / "r" for name in NAMES):
        (model,) = load_models(folder)
        found = csv_of(predictions(model, load_answering(folder)))
        assert found == (folder / "predictions.csv").read_text()


@pytest.mark.slow
def test_owners_who_hold_nodes_in_common_train_the_model_of_one_process(
    referring: Path, tmp_path: Path
) -> None:
    """Some of each hospital's patients are the next one's, too, with visits of their own."""
    root, columns = tmp_path / "tables", {n: [] for n in NAMES}  # type: ignore[var-annotated]
    for name in NAMES:
        columns[name] = (referring / name / "nodes.csv").read_text().split()
    for name, before in zip(NAMES, NAMES[-1:] + NAMES[:-1], strict=True):
        (root / name).mkdir(parents=True)
        lines = columns[name] + columns[before][1:20]
        (root / name / "nodes.csv").write_text("\n".join(lines) + "\n")
        schema = (referring / name / "schema.toml").read_text()
        (root / name / "schema.toml").write_text('shared = "same"\n' + schema)
        edges = (referring / name / "edges.csv").read_text().split()
        nobody = [edges[0], *(line.rpartition(",")[0] + "," for line in edges[1:])]
        (root / name / "edges.csv").write_text("\n".join(nobody) + "\n")
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    keys = known_keys(range(len(NAMES)))
    sites = [
        Site(n, read_owned(root / n), tmp_path / n, "1.0", print, keys[i], LINKED)
        for i, n in enumerate(NAMES)
    ]
    there = serve(
        config, SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "server", ignore_event
    )
    data = config.data.model_copy(update={"dataset": str(root)})
    here = run_config(config.model_copy(update={"data": data}))
    assert there.record.model_sha256 == here.record.model_sha256
    known = sites[1].keeper.owner.parts["links"]
    assert len(known.ends.here) > known.ends.known  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_the_sums_it_has(
    parties: Make, tmp_path: Path
) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    run = "r", "1.0", tmp_path / "server"
    whole = serve(config, SiteEngine(parties()), NAMES, *run, ignore_event)

    class Killed(SiteEngine):
        def carry(self, procedure, requests, lot=None):  # type: ignore[no-untyped-def]
            if procedure.name == "local_change_c" and procedure.name in {
                n for _, n in self.log
            }:
                raise KeyboardInterrupt
            return super().carry(procedure, requests, lot)

    other = "again", "1.0", tmp_path / "server 2"
    with pytest.raises(KeyboardInterrupt):
        serve(config, Killed(parties()), NAMES, *other, ignore_event)
    engine = SiteEngine(parties())
    again = serve(config, engine, NAMES, *other, ignore_event)
    assert again.record.model_sha256 == whole.record.model_sha256
    assert "contribute" not in {name for _, name in engine.log}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["find_nodes", "contribute", "take_sums", "mend_by_links"])
def test_a_run_that_was_stopped_during_the_exchange_ends_as_if_it_had_not_been(
    parties: Make, tmp_path: Path, step: str
) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    run = "r", "1.0", tmp_path / "server"
    whole = serve(config, SiteEngine(parties()), NAMES, *run, ignore_event)

    class Killed(SiteEngine):
        def carry(self, procedure, requests, lot=None):  # type: ignore[no-untyped-def]
            if procedure.name == step:  # one owner has answered
                super().carry(procedure, dict([*requests.items()][:1]), lot)
                raise KeyboardInterrupt
            return super().carry(procedure, requests, lot)

    for name in NAMES:  # what the first run gave is forgotten
        (tmp_path / name / "links.safetensors").unlink()
    other = "again", "1.0", tmp_path / "server 2"
    with pytest.raises(KeyboardInterrupt):
        serve(config, Killed(parties()), NAMES, *other, ignore_event)
    again = serve(config, SiteEngine(parties()), NAMES, *other, ignore_event)
    assert again.record.model_sha256 == whole.record.model_sha256


def test_owners_whose_schema_allows_no_links_say_so(hospitals: Path, tmp_path: Path) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    keys = known_keys(range(len(NAMES)))
    sites = [
        Site(n, read_owned(hospitals / n), tmp_path / n, "1.0", print, keys[i], LINKED)
        for i, n in enumerate(NAMES)
    ]
    with pytest.raises(FedSageError, match='links = "known"'):
        serve(config, SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "s", ignore_event)


def test_in_a_rehearsal_owners_are_called_as_their_folders_are(
    referring: Path, tmp_path: Path
) -> None:
    """Or links that name their owner would lead to nobody."""
    config = config_for("fedsage+links", data={"dataset": str(referring)})
    found = owners_data(config, tmp_path / "data")
    assert list(found) == list(NAMES) and found["west"] == (referring / "west").resolve()
    shutil.copytree(referring, tmp_path / "clinics")
    (tmp_path / "clinics" / "west").rename(tmp_path / "clinics" / "West Clinic")  # no name
    config = config_for("fedsage+links", data={"dataset": str(tmp_path / "clinics")})
    assert list(owners_data(config, tmp_path / "data")) == ["owner-0", "owner-1", "owner-2"]


def test_the_policy_of_a_new_kit_does_not_allow_it(parties: Make, tmp_path: Path) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    sites = parties()
    for site in sites:
        site._policy = TINY
    with pytest.raises(FedSageError, match=r"mend.how is 'links' \(policy.toml"):
        serve(config, SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "s", ignore_event)


def test_hashes_need_a_line_of_the_policy(parties: Make, tmp_path: Path) -> None:
    traffic, links = traffic_of("low-rank", rank=1), {"match": "hashes"}
    config = config_for("fedsage+links", traffic=traffic, links=links)
    sites = parties()
    for site in sites:
        site._policy = replace(TINY, rules=TINY.rules | {"mending": ["links"]})
    with pytest.raises(FedSageError, match=r"links.match is 'hashes' \(policy.toml"):
        serve(config, SiteEngine(sites), NAMES, "r", "1.0", tmp_path / "s", ignore_event)


def held_by(engine: SiteEngine, owner: int) -> HeldMeans:
    """The means that an owner has at the end of a run."""
    part = engine.sites[owner].keeper.owner.parts["links"]
    assert isinstance(part, LinkWork)
    return part.held


def with_more_links(parties: Make) -> list[Site]:
    """The owners a month later: the first has links to ten nodes that it had none to."""
    sites = parties()
    first = sites[0].owned
    remote = first.tables.remote
    new = [f"{name}-{v}" for v in range(60) for name in NAMES[1:]]
    new = [one for one in new if one not in remote.there][:10]
    here = np.append(remote.here, np.arange(len(new)))
    more = RemoteLinks(here, (*remote.there, *new), (*remote.owner, *("",) * len(new)))
    sites[0].owned = replace(first, tables=replace(first.tables, remote=more))
    return sites


@pytest.mark.slow
def test_a_month_later_only_new_nodes_are_summed(parties: Make, tmp_path: Path) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    first, second = SiteEngine(parties()), SiteEngine(with_more_links(parties))
    serve(config, first, NAMES, "r1", "1.0", tmp_path / "s1", ignore_event)
    serve(config, second, NAMES, "r2", "1.0", tmp_path / "s2", ignore_event)
    before, after = held_by(first, 0), held_by(second, 0)
    kept = np.isin(after.ids, before.ids)
    assert kept.sum() == len(before.ids) < len(after.ids) <= len(before.ids) + 10
    assert np.array_equal(
        after.means[after.group[kept]], before.means[before.group]
    )  # as they were
    groups = [set(after.group[some].tolist()) for some in (kept, ~kept)]
    assert not groups[0] & groups[1]  # no node is in sums of two months


@pytest.mark.slow
def test_an_owner_who_forgets_what_it_got_gets_nothing_more(
    parties: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    serve(config, SiteEngine(parties()), NAMES, "r1", "1.0", tmp_path / "s1", ignore_event)
    (tmp_path / NAMES[0] / "links.safetensors").unlink()
    engine = SiteEngine(with_more_links(parties))
    serve(config, engine, NAMES, "r2", "1.0", tmp_path / "s2", ignore_event)
    assert not len(held_by(engine, 0).ids)
    assert "in an earlier run" in caplog.text
    (tmp_path / NAMES[1] / "links.safetensors").write_bytes(b"damaged")
    with pytest.raises(FedSageError, match="cannot be read"):
        serve(config, SiteEngine(parties()), NAMES, "r3", "1.0", tmp_path / "s3", ignore_event)


@pytest.mark.slow
def test_a_run_of_an_old_name_shows_nothing_again(
    parties: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server may call a run as it likes, and owners remove the folders of old ones."""
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    first = SiteEngine(parties())
    serve(config, first, NAMES, "r", "1.0", tmp_path / "s1", ignore_event)
    for name in NAMES:
        shutil.rmtree(tmp_path / name / "r")
    second = SiteEngine(with_more_links(parties))
    serve(config, second, NAMES, "r", "1.0", tmp_path / "s2", ignore_event)
    before, after = held_by(first, 0), held_by(second, 0)
    both = np.intersect1d(before.ids, after.ids)
    partners = [
        {i: frozenset(one.ids[one.group == g]) for i, g in zip(one.ids, one.group, strict=True)}
        for one in (before, after)
    ]
    changed = [i for i in both.tolist() if partners[0][i] != partners[1][i]]
    assert not changed and "in an earlier run" in caplog.text


@pytest.mark.slow
def test_a_run_whose_folder_is_lost_may_be_repeated_as_it_was(
    parties: Make, tmp_path: Path
) -> None:
    config = config_for("fedsage+links", traffic=traffic_of("low-rank", rank=1))
    first, second = SiteEngine(parties()), SiteEngine(parties())
    serve(config, first, NAMES, "r", "1.0", tmp_path / "s1", ignore_event)
    for name in NAMES:
        shutil.rmtree(tmp_path / name / "r")
    serve(config, second, NAMES, "r", "1.0", tmp_path / "s2", ignore_event)
    assert np.array_equal(held_by(first, 0).means, held_by(second, 0).means)


def test_what_was_shown_before_a_restart_is_not_forgotten(tmp_path: Path) -> None:
    """A run that is asked for fewer nodes when it goes on has shown the others, too."""
    memory = LinkMemory(tmp_path / "links.safetensors", "r1")
    memory.gave("east", np.array([1, 2, 3]), b"a" * 32, again=False)
    memory.asked(np.array([4, 5]))
    memory.gave("east", np.array([1]), b"b" * 32, again=True)
    memory.asked(np.array([5]))
    later = LinkMemory(tmp_path / "links.safetensors", "r2")
    assert later.ids_before(GAVE, "east").tolist() == [1, 2, 3]
    assert later.ids_before(ASKED, "").tolist() == [4, 5]
    with pytest.raises(FedSageError, match="in an earlier run"):
        later.gave("east", np.array([2, 9]), b"c" * 32, again=False)
    with pytest.raises(FedSageError, match="in an earlier run"):  # the run's folder was lost
        LinkMemory(tmp_path / "links.safetensors", "r1").gave(
            "east", np.array([2]), b"c" * 32, again=False
        )
