"""A federated run without the network: the same model as in one process, and nothing more."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsage.config import Config
from fedsage.data.npz import load_graph
from fedsage.data.owned import read_owned
from fedsage.errors import ConfigError, DataError, PrivacyError, ProtocolError
from fedsage.federation.consent.own_files import allow, checksums_of, with_own_copies
from fedsage.federation.consent.policy import RULES
from fedsage.federation.owner.site import BEFORE, Site
from fedsage.federation.server.serve import Served, federated, serve
from fedsage.graph.graph import Graph
from fedsage.mending.classes import ClassLinks, count_class_links
from fedsage.mending.subspace import (
    Sketch,
    WholeSketch,
    sketch_features,
    sketch_in_whole,
)
from fedsage.methods import all_methods, find_method
from fedsage.models.classifier import load_models
from fedsage.protocol.changes.follow import News, Turn
from fedsage.protocol.changes.owner import local_change_c, sizes_of_parts
from fedsage.protocol.changes.state import FIXED, Change, first_common
from fedsage.protocol.door import Door
from fedsage.protocol.messages import Ask, ClassifierUpdate, Hits
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Procedure
from fedsage.protocol.wire import decode, encode, unpacked
from fedsage.runs.events import HistoryLine, Observer, ignore_event
from fedsage.runs.execute import run_config
from fedsage.runs.predictions import predictions_on
from fedsage.runs.result import RunResult
from fedsage.tables.feature import Feature
from tests.federation.conftest import (
    NAMES,
    TINY,
    SiteEngine,
    Stop,
    config_for,
    into,
    stop_after,
)
from tests.small import HOWS, traffic_of

Make = Callable[[], list[Site]]
FEDERATED = [
    name
    for name in all_methods()
    if federated(find_method(name), "subspace")
    and re.sub(r"\+.*", "+", name) in RULES["methods"]  # what kits allow: no methods of others
]


def in_process(config: Config, hospitals: Path) -> RunResult:
    data = config.data.model_copy(update={"dataset": str(hospitals)})
    return run_config(config.model_copy(update={"data": data}))


def test_the_federated_methods_are_fedsage_and_its_ways_of_mending() -> None:
    ways = ("classes", "copy", "links", "neighgen", "shared", "subspace")
    assert set(FEDERATED) == {"fedsage", "fedsage+", *(f"fedsage+{way}" for way in ways)}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "method", sorted({*FEDERATED} - {"fedsage+links"})
)  # test_known_links.py
def test_the_model_is_the_one_of_a_run_in_one_process(
    method: str, how: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    config = config_for(method, traffic=traffic_of(how, rank=1))
    there = serve(
        config, SiteEngine(sites()), NAMES, "r1", "1.0", tmp_path / "server", ignore_event
    )
    here = in_process(config, hospitals)
    assert there.record.model_sha256 == here.record.model_sha256
    assert there.record.accuracy == here.record.accuracy
    assert there.record.accuracy["global"] is None


@pytest.mark.slow
def test_every_owner_has_its_model_graph_and_predictions(sites: Make, tmp_path: Path) -> None:
    config = config_for("fedsage+neighgen")
    made = sites()
    serve(config, SiteEngine(made), NAMES, "r1", "1.0", tmp_path / "server", ignore_event)
    for site in made:
        folder = tmp_path / site.name / "r1"
        (model,) = load_models(folder)
        lines = (folder / "predictions.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == list(site.owned.ids)
        assert {line.split(",")[1] for line in lines[1:]} <= {"ill", "well"}
        assert isinstance(load_graph(folder / "mended.npz"), Graph)
        assert (folder / "neighgen.safetensors").stat().st_size > 0
        assert model.scale is not None and model.schema is not None
        assert "What leaves this site" in (folder / "what-leaves.txt").read_text()
        assert json.loads((folder / "settings.json").read_text())["run"]["method"]


@pytest.mark.slow
def test_the_coordinators_model_gives_owners_answers_on_their_tables(
    sites: Make, tmp_path: Path
) -> None:
    made, folder = sites(), tmp_path / "server"
    serve(config_for("fedsage"), SiteEngine(made), NAMES, "r1", "1.0", folder, ignore_event)
    (model,) = load_models(folder)
    assert model.schema is None  # it stays with the owners; the scale is everybody's
    for site in made:
        assert site.owned.tables is not None
        graph = model.graph_of(site.owned.tables)
        found = predictions_on(model, graph, site.owned.ids)
        with (tmp_path / site.name / "r1" / "predictions.csv").open() as file:
            wanted = list(csv.DictReader(file))
        assert found["predicted"] == [row["predicted"] for row in wanted]
        for column in ("probability", "probability_ill", "probability_well"):
            assert found[column] == [float(row[column]) for row in wanted]
    other = replace(site.owned.tables, schema=replace(site.owned.tables.schema, time="since"))
    with pytest.raises(DataError, match=r"another schema.toml"):
        model.graph_of(other)


@pytest.mark.slow
def test_every_message_that_left_has_a_line(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(
        config_for("fedsage+neighgen"), engine, NAMES, "r1", "1.0", tmp_path / "s", ignore_event
    )
    for i, name in enumerate(NAMES):
        logs = [tmp_path / name / run / "sent.jsonl" for run in (BEFORE, "r1")]
        lines = [line for log in logs for line in log.read_text().splitlines()]
        sent = [json.loads(line) for line in lines]
        assert [one["procedure"] for one in sent] == [p for j, p in engine.log if j == i]
        assert all(len(one["sha256"]) == 64 and one["bytes"] > 0 for one in sent)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_no_cell_of_a_table_is_in_a_message(how: str, sites: Make, tmp_path: Path) -> None:
    """Ids and single values of the first owner, searched in every frame that left it.

    Whole numbers are searched as they were before they were deflated, too.
    """
    made = sites()
    engine, config = SiteEngine(made), config_for("fedsage", traffic=traffic_of(how, rank=1))
    serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    tables = made[0].owned.tables
    assert tables is not None
    frames = [frame for i, frame in engine.frames if i == 0]
    tensors = [t for f in frames for t in unpacked(memoryview(f.partition(b"\n")[2])).values()]
    body = b"".join([*frames, *(tensor.numpy().tobytes() for tensor in tensors)])
    assert not any(identifier.encode() in body for identifier in tables.ids)
    x = made[0].keeper.owner.graph.x
    rows = [row.tobytes() for row in x]
    assert not any(row in body for row in rows)
    assert not any(value.tobytes() in body for value in tables.numbers.ravel())


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_run_that_was_stopped_again_and_again_goes_on_from_the_last_round(
    how: str, sites: Make, tmp_path: Path
) -> None:
    config = config_for("fedsage+neighgen", traffic=traffic_of(how, rank=1))
    whole: list[HistoryLine] = []
    wanted = serve(
        config, SiteEngine(sites()), NAMES, "whole", "1.0", tmp_path / "w", into(whole)
    )
    folder = tmp_path / "server"
    for rounds in (1, 3, 5):
        with pytest.raises(Stop):
            serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, stop_after(rounds))
    lines: list[HistoryLine] = []
    again = serve(config, SiteEngine(sites()), NAMES, "r", "1.0", folder, into(lines))
    assert again.record.model_sha256 == wanted.record.model_sha256
    assert again.record.resumed == 2  # before the first round is kept, nothing is resumed
    assert [line.loss for line in lines] == [line.loss for line in whole]


@pytest.mark.slow
def test_another_version_is_named_on_both_sides(sites: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server has fedsage 2\.0, owner east has 1\.0"):
        serve(
            config_for("fedsage"),
            SiteEngine(sites()),
            NAMES,
            "r",
            "2.0",
            tmp_path,
            ignore_event,
        )


def test_another_schema_is_answered_with_the_columns_that_differ(
    sites: Make, tmp_path: Path
) -> None:
    made = sites()
    tables = made[2].owned.tables
    assert tables is not None
    age, pulse, ward = tables.schema.features
    wider = replace(ward, categories=(*ward.categories, "a secret ward"))
    for name, value in {
        "class_names": ("ill", "other"),
        "features": (age, replace(pulse, kind="count"), wider, Feature("dose", "number")),
    }.items():
        object.__setattr__(tables.schema, name, value)
    engine = SiteEngine(made)
    with pytest.raises(ConfigError) as caught:
        serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path, ignore_event)
    assert str(caught.value) == (
        "The schemas of owner east and owner west differ in column pulse (number and count), "
        "column ward (other categories or settings), classes, column dose (only in the "
        "second). Make a common one with 'fedsage data merge', and give every owner the same "
        "schema.toml."
    )
    assert not any(b"secret" in frame for _, frame in engine.frames)


@pytest.mark.parametrize("method", ["globsage", "locsage", "locsage+", "oracle"])
def test_what_cannot_be_federated_is_refused(method: str, sites: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be run between separate owners"):
        serve(
            config_for(method), SiteEngine(sites()), NAMES, "r", "1.0", tmp_path, ignore_event
        )


@pytest.mark.slow
def test_an_owner_answers_what_was_agreed_and_nothing_else(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    site = engine.sites[0]
    for procedure in (
        "sketch_features", "sketch_sizes", "sketch_in_whole", "count_class_links",
        "local_request", "local_update_c", "no such thing",
    ):  # fmt: skip
        with pytest.raises(PrivacyError, match="not part of the agreed run"):
            site.answer(procedure, encode(Ask(0)))


def door_after(sites: Make, tmp_path: Path, how: str) -> Door:
    """The first owner's, after a run of FedSage."""
    engine, config = SiteEngine(sites()), config_for("fedsage", traffic=traffic_of(how, rank=1))
    serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    return engine.sites[0].door


@pytest.fixture
def door(sites: Make, tmp_path: Path) -> Door:
    """After a run by full messages."""
    return door_after(sites, tmp_path, "full")


def fitting(door: Door) -> ClassifierUpdate:
    """An answer to procedure F, as agreed."""
    assert door.plan is not None
    return ClassifierUpdate(dict(door.plan.phi.phi), {}, 1.0, 0.5)


def fitting_change(door: Door) -> Change:
    """The same in whole numbers."""
    assert door.plan is not None
    sizes = sizes_of_parts(first_common(door.plan, 3, 1.0))
    parts = {part: torch.ones(size, dtype=torch.int8) for part, size in sizes.items()}
    return Change(parts, 2**FIXED, 2**FIXED, 0, 1)


def with_first(update: ClassifierUpdate, change: Callable[[Any], Any]) -> ClassifierUpdate:
    name, weight = next(iter(update.phi.items()))
    return replace(update, phi=update.phi | {name: change(weight)})


def with_part(sent: Change, alter: Callable[[Any], Any]) -> Change:
    name, numbers = next((name, n) for name, n in sent.parts.items() if n.ndim == 2)
    return replace(sent, parts=sent.parts | {name: alter(numbers)})


WRONG: dict[str, tuple[Callable[[ClassifierUpdate], Any], str]] = {
    "another message": (lambda u: Hits(1, 1, 1, 2), "answered with a ClassifierUpdate"),
    "the question": (lambda u: Ask(0), "answered with a ClassifierUpdate"),
    "bytes": (lambda u: encode(u), "answered with a ClassifierUpdate"),
    "rows of features": (lambda u: torch.ones(3, 5), "answered with a ClassifierUpdate"),
    "a larger classifier": (
        lambda u: ClassifierUpdate({"w": torch.ones(5, 5)}, {}, 1.0, 1.0),
        "is missing|is present",
    ),
    "more rows": (lambda u: with_first(u, lambda w: torch.cat([w, w])), "has shape"),
    "fewer rows": (lambda u: with_first(u, lambda w: w[1:]), "has shape"),
    "other numbers": (lambda u: with_first(u, lambda w: w.double()), "has type"),
    "a weight more": (
        lambda u: replace(u, phi=u.phi | {"rows": torch.ones(9, 4)}), "rows is present"),
    "a weight less": (lambda u: replace(u, phi={}), "is missing"),
    "moments that are none": (
        lambda u: replace(u, moments={"rows": torch.ones(9, 4)}), "moment"),
    "moments of another shape": (
        lambda u: replace(u, moments={f"{k}.exp_avg": torch.ones(99, 99) for k in u.phi}),
        "moment"),
}  # fmt: skip
ROWS = torch.ones(9, 4, dtype=torch.int8)
WRONG_CHANGES: dict[str, tuple[Callable[[Change], Any], str]] = {
    "another message": (lambda c: Hits(1, 1, 1, 2), "answered with a Change"),
    "the question": (lambda c: Turn(0, False), "answered with a Change"),
    "the sum of all": (lambda c: News(1, 3, 1.0, {}, {}, c, {}), "answered with a Change"),
    "the whole classifier": (
        lambda c: ClassifierUpdate({"w": torch.ones(5, 5)}, {}, 1.0, 1.0),
        "answered with a Change"),
    "bytes": (lambda c: encode(c), "answered with a Change"),
    "rows of features": (lambda c: torch.ones(3, 5), "answered with a Change"),
    "more rows": (lambda c: with_part(c, lambda n: torch.cat([n, n])), "has shape"),
    "fewer rows": (lambda c: with_part(c, lambda n: n[1:]), "has shape"),
    "more directions": (lambda c: with_part(c, lambda n: torch.cat([n, n], 1)), "has shape"),
    "fractions": (lambda c: with_part(c, lambda n: n.float()), "has type"),
    "doubles": (lambda c: with_part(c, lambda n: n.double()), "has type"),
    "numbers of 64 bits": (lambda c: with_part(c, lambda n: n.long()), "has type"),
    "a part more": (lambda c: replace(c, parts=c.parts | {"rows": ROWS}), "rows is present"),
    "a part less": (
        lambda c: replace(c, parts={p: n for p, n in c.parts.items() if p != "rest"}),
        "rest is missing"),
    "other parts": (lambda c: replace(c, parts={"rows": ROWS}), "is missing|is present"),
    "no parts": (lambda c: replace(c, parts={}), "is missing"),
}  # fmt: skip


def refuses(
    door: Door, procedure: Procedure[Any, Any, Any], wrong: Any, why: str, fits: Any
) -> None:
    """What is wrong does not leave and leaves no line; what fits does both after it."""
    assert door.folder is not None
    before, passed = (door.folder / "sent.jsonl").read_text(), door.passed
    with pytest.raises(PrivacyError, match=f"must not leave: .*({why})"):
        door.let_out(procedure, wrong)
    assert (door.folder / "sent.jsonl").read_text() == before and door.passed == passed
    frame = door.let_out(procedure, fits)
    assert encode(decode(procedure.reply, frame)) == frame == encode(fits)
    last = (door.folder / "sent.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["sha256"] == door.passed != passed


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_the_door_refuses_what_does_not_fit(case: str, door: Door) -> None:
    change, why = WRONG[case]
    fits = fitting(door)
    refuses(door, DataOwner.local_update_c, change(fits), why, fits)


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_CHANGES)
def test_the_door_refuses_changes_that_do_not_fit(
    case: str, sites: Make, tmp_path: Path
) -> None:
    alter, why = WRONG_CHANGES[case]
    door = door_after(sites, tmp_path, "low-rank")
    fits = fitting_change(door)
    refuses(door, local_change_c, alter(fits), why, fits)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_the_door_lets_out_one_form_alone(how: str, sites: Make, tmp_path: Path) -> None:
    """Who agreed to whole numbers does not send φ itself, and the other way round."""
    door = door_after(sites, tmp_path, how)
    answers = {
        DataOwner.local_update_c: fitting(door), local_change_c: fitting_change(door),
        sketch_features: Sketch(torch.ones(5, 3)), sketch_in_whole: WholeSketch(ROWS),
    }  # fmt: skip
    ours = {"full": DataOwner.local_update_c, "low-rank": local_change_c}[how]
    for procedure, message in answers.items():
        if procedure is not ours:
            with pytest.raises(PrivacyError, match="not part of the agreed run"):
                door.let_out(procedure, message)
    door.let_out(ours, answers[ours])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (sketch_features, Sketch(torch.ones(5, 3))),
        (sketch_in_whole, WholeSketch(ROWS)),
        (count_class_links, ClassLinks(torch.ones(2, 2))),
    ],
)
def test_the_door_refuses_what_was_not_agreed(asked: Any, message: Any, door: Door) -> None:
    """FedSage was agreed on, which needs none: also where the answer would be right."""
    assert door.folder is not None
    before = (door.folder / "sent.jsonl").read_text()
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        door.asked(asked.name)
    with pytest.raises(PrivacyError):
        door.let_out(asked, message)
    assert (door.folder / "sent.jsonl").read_text() == before
    assert door.asked("test_classifier") is DataOwner.test_classifier


@pytest.mark.slow
def test_a_question_that_cannot_be_read_is_not_answered(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    sent = tmp_path / "east" / "r" / "sent.jsonl"
    before = sent.read_text()
    for frame in (b"garbage", encode(Hits(1, 1, 1, 2))):
        with pytest.raises(ProtocolError):
            engine.sites[0].answer("test_classifier", frame)
    assert sent.read_text() == before


OWN_WAY = """
'''Every training node gets the mean of all owners' rows.'''

import numpy as np
import torch

import fedsage as fs


@fs.message
class Rows:
    '''D_i → S, then summed S → every D_i: all training rows added up, and how many.'''

    total: torch.Tensor
    count: torch.Tensor


@fs.procedure(
    phase="mending",
    uses=fs.Summed,
    shapes=lambda plan: {"total": (plan.d_x,), "count": (1,)},
    leaves="Before training, once: the sum of your training rows, and how many there are.",
)
def add_up_rows(owner: fs.DataOwner, ask: fs.Ask) -> Rows:
    train = owner.split.train
    total = np.asarray(owner.graph.x[train].sum(axis=0), dtype=np.float32).ravel()
    return Rows(torch.from_numpy(total), torch.full((1,), float(len(train))))


@fs.procedure(phase="mending", owed=True)
def attach_mean(owner: fs.DataOwner, rows: Rows) -> fs.Mended:
    train = owner.split.train
    mean = (rows.total / rows.count).numpy()
    return owner.attach(fs.Generated.of(train, np.tile(mean, (len(train), 1)), owner.graph))


@fs.way_of_mending("mean-row")
def by_mean_row(exchange: fs.Exchange) -> None:
    '''The mean row as a neighbor of every training node.'''
    exchange.all(attach_mean, exchange.sum(add_up_rows, fs.Ask(0)))
"""


@pytest.fixture
def own_way(tmp_path: Path) -> Path:
    """A way of mending in a user's file, on the coordinator's machine."""
    path = tmp_path / "coordinator" / "mean_row.py"
    path.parent.mkdir()
    path.write_text(OWN_WAY)
    return path


@pytest.fixture
def houses(hospitals: Path, tmp_path: Path) -> Make:
    """As ``sites``, but each in a kit of its own: none sees what another has allowed."""

    def make() -> list[Site]:
        return [
            Site(n, read_owned(hospitals / n), tmp_path / n / "runs", "1.0", print, policy=TINY)
            for n in NAMES
        ]

    return make


def named_as(path: Path, how: str) -> Config:
    if how == "the method":
        return config_for(f"fedsage+{path}")
    return config_for("fedsage+", mend={"how": str(path)})


def serve_own(
    config: Config, engine: SiteEngine, folder: Path, observe: Observer = ignore_event
) -> Served:
    """Serve as NVFlare's server does: by its own copy, with the settings as they were given."""
    files = checksums_of(config)
    own = with_own_copies(config, files, folder)
    given = config.model_dump_json()
    return serve(own, engine, NAMES, "r", "1.0", folder / "r", observe, given, files)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["the method", "the setting"])
def test_a_user_s_way_of_mending_works_where_everyone_has_allowed_it(
    how: str, own_way: Path, houses: Make, hospitals: Path, tmp_path: Path
) -> None:
    for party in (*NAMES, "server"):
        allow(own_way, tmp_path / party)
    config, engine = named_as(own_way, how), SiteEngine(houses())
    there = serve_own(config, engine, tmp_path / "server")
    here = in_process(config, hospitals)
    assert there.record.model_sha256 == here.record.model_sha256
    assert there.record.accuracy == here.record.accuracy
    plain = in_process(config_for("fedsage"), hospitals)
    assert there.record.model_sha256 != plain.record.model_sha256  # it was mended
    for i, name in enumerate(NAMES):
        folder = tmp_path / name / "runs" / "r"
        assert "the sum of your training rows" in (folder / "what-leaves.txt").read_text()
        sent = [json.loads(line) for line in (folder / "sent.jsonl").read_text().splitlines()]
        asked = [p for j, p in engine.log if j == i and p != "consent"]
        assert [one["procedure"] for one in sent] == asked
        (rows,) = [one for one in sent if one["type"] == "Rows"]
        assert rows["shapes"] == [[1], [engine.sites[i].plan.d_x]]
        mended = load_graph(folder / "mended.npz")
        site = engine.sites[i]
        assert mended.num_nodes == site.owned.num_nodes + len(site.split.train)


def test_a_tensor_that_no_form_speaks_of_does_not_leave(
    own_way: Path, houses: Make, tmp_path: Path
) -> None:
    """A user's procedure that says nothing of one of its tensors."""
    own_way.write_text(OWN_WAY.replace('"total": (plan.d_x,), ', ""))
    for party in (*NAMES, "server"):
        allow(own_way, tmp_path / party)
    with pytest.raises(PrivacyError, match="A Rows must not leave: total is present"):
        serve_own(named_as(own_way, "the method"), SiteEngine(houses()), tmp_path / "server")
    for name in NAMES:
        sent = tmp_path / name / "runs" / "r" / "sent.jsonl"
        assert "add_up_rows" not in sent.read_text()


@pytest.mark.slow
def test_a_run_by_a_user_s_way_of_mending_goes_on_after_a_kill(
    own_way: Path, houses: Make, hospitals: Path, tmp_path: Path
) -> None:
    for party in (*NAMES, "server"):
        allow(own_way, tmp_path / party)
    config = named_as(own_way, "the method")
    with pytest.raises(Stop):
        serve_own(config, SiteEngine(houses()), tmp_path / "server", stop_after(2))
    engine = SiteEngine(houses())
    again = serve_own(config, engine, tmp_path / "server")
    assert again.record.resumed == 1
    assert not any(name == "add_up_rows" for _, name in engine.log)
    here = in_process(config, hospitals)
    assert again.record.model_sha256 == here.record.model_sha256


@pytest.mark.parametrize("how", ["the method", "the setting"])
@pytest.mark.parametrize("has", ["nothing", "the same name, other content", "another file"])
def test_a_user_s_file_is_refused_where_an_owner_has_not_allowed_it(
    has: str, how: str, own_way: Path, houses: Make, tmp_path: Path
) -> None:
    for party in ("east", "north", "server"):
        allow(own_way, tmp_path / party)
    other = tmp_path / "west's own" / ("other.py" if has == "another file" else own_way.name)
    other.parent.mkdir()
    other.write_text(OWN_WAY + "\nraise SystemExit('this was run')\n")
    if has != "nothing":
        allow(other, tmp_path / "west")
    engine = SiteEngine(houses())
    with pytest.raises(PrivacyError, match=r"mean_row\.py .*which is not allowed here"):
        serve_own(named_as(own_way, how), engine, tmp_path / "server")
    west = engine.sites[2]
    assert west.config is None and not (tmp_path / "west" / "runs").exists()
    with pytest.raises(PrivacyError, match="not part of the agreed run"):
        west.answer("add_up_rows", encode(Ask(0)))


def test_an_owner_goes_by_the_checksum_and_not_by_what_the_server_says_of_it(
    own_way: Path, houses: Make, tmp_path: Path
) -> None:
    """A path on the owner's own disk, or a checksum left out, gets nobody past it."""
    from fedsage.protocol.agreement import Agreement

    settings = named_as(own_way, "the method").model_dump_json()
    for files in ({}, {"run.method": ""}, {"mend.how": checksums_of_file(own_way)}):
        with pytest.raises(PrivacyError, match="which is not allowed here"):
            houses()[0].agree(Agreement("r", 0, "1.0", settings, json.dumps(files)))


def checksums_of_file(path: Path) -> str:
    (found,) = checksums_of(named_as(path, "the method")).values()
    return found


def test_a_server_that_has_not_allowed_a_file_does_not_run_it(
    own_way: Path, houses: Make, tmp_path: Path
) -> None:
    for party in NAMES:
        allow(own_way, tmp_path / party)
    engine = SiteEngine(houses())
    with pytest.raises(PrivacyError, match="which is not allowed here"):
        serve_own(named_as(own_way, "the method"), engine, tmp_path / "server")
    assert not engine.log


@pytest.mark.slow
def test_a_run_is_not_gone_on_with_by_another_file_of_the_same_name(
    own_way: Path, houses: Make, tmp_path: Path
) -> None:
    for party in (*NAMES, "server"):
        allow(own_way, tmp_path / party)
    config = named_as(own_way, "the method")
    with pytest.raises(Stop):
        serve_own(config, SiteEngine(houses()), tmp_path / "server", stop_after(2))
    own_way.write_text(OWN_WAY + "\nCHANGED = True\n")
    for party in (*NAMES, "server"):
        allow(own_way, tmp_path / party)
    with pytest.raises(ConfigError, match="began this run with other"):
        serve_own(config, SiteEngine(houses()), tmp_path / "server")


@pytest.mark.parametrize("topology", ["alone", "whole"])
def test_a_user_s_method_that_is_not_federated_is_refused(
    topology: str, sites: Make, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import fedsage as fs\n\n\n"
        f"@fs.method('mine', topology='{topology}')\nclass Mine(fs.DataOwner):\n    'Mine.'\n"
    )
    with pytest.raises(ConfigError, match="cannot be run between separate owners"):
        serve(
            config_for(str(path)), SiteEngine(sites()), NAMES, "r", "1.0", tmp_path,
            ignore_event,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_round_without_an_owner_is_told_and_in_the_report(
    how: str, sites: Make, tmp_path: Path
) -> None:
    from dataclasses import asdict

    from fedsage.protocol.plan import Miss
    from fedsage.report.page import page
    from fedsage.report.read import read_runs
    from fedsage.runs.folder import Provenance, append_history, write_result

    class Away(SiteEngine):
        """The third owner is away in the second round."""

        def carry(self, procedure, requests, lot=None):  # type: ignore[no-untyped-def]
            ask = next(iter(requests.values()))
            trains = procedure.name in ("local_update_c", "local_change_c")
            if trains and ask.t == 1 and 2 in requests:
                rest = {i: request for i, request in requests.items() if i != 2}
                return {
                    **super().carry(procedure, rest, lot),
                    2: Miss(2, procedure.name, "asleep"),
                }
            return super().carry(procedure, requests, lot)

    config = config_for("fedsage", traffic=traffic_of(how, rank=1))
    lines: list[HistoryLine] = []
    engine = Away(sites(), least=2)
    found = serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", into(lines))
    assert [len(line.without) for line in lines] == [0, 1, 0, 0]
    assert found.record.missed == 1
    folder = tmp_path / "run"
    folder.mkdir()
    for line in lines:
        append_history(folder, line)
    write_result(folder, found.record, Provenance(config.model_dump(mode="json"), "fedsage"))
    text = page(read_runs([folder]))
    assert "Rounds without an owner" in text and "asleep" in text and "D2" in text
    assert asdict(lines[1])["without"][0]["owner"] == 2
    with pytest.raises(ProtocolError, match="2 of 3 owners gave a usable answer"):
        serve(config, Away(sites()), NAMES, "r2", "1.0", tmp_path / "s2", ignore_event)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["open", "sums"])
def test_the_server_stops_early_when_validation_no_longer_improves(
    privacy: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    how = {"classifier": {"rounds_c": 30, "patience": 2}, "privacy": {"level": privacy}}
    config = config_for("fedsage", traffic=traffic_of("low-rank", rank=1), **how)
    lines: list[HistoryLine] = []
    engine, folder = SiteEngine(sites()), tmp_path / "server"
    there = serve(config, engine, NAMES, "r1", "1.0", folder, into(lines))
    seen = [line.validation or 0.0 for line in lines]
    assert len(seen) < 30 and seen.index(max(seen)) == len(seen) - 3
    here = in_process(config, hospitals)
    assert len(here.history) == len(seen)
    assert there.record.model_sha256 == here.record.model_sha256
