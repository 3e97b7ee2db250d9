"""A federated run without the network: the same model as in one process, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedsage.data.npz import load_graph
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.evaluation.results import HistoryLine
from fedsage.federation.serve import FEDERATED, serve
from fedsage.federation.site import Site
from fedsage.graph.graph import Graph
from fedsage.models.classifier import load_models
from fedsage.protocol.messages import Agreement, Ask, ClassifierUpdate, ClassLinks, Hits, Sketch
from fedsage.protocol.wire import encode
from fedsage.runs import ignore_line, run_config
from tests.federation.conftest import NAMES, SiteEngine, config_for

Make = Callable[[], list[Site]]


@pytest.mark.parametrize("method", FEDERATED)
def test_the_model_is_the_one_of_a_run_in_one_process(
    method: str, sites: Make, hospitals: Path, tmp_path: Path
) -> None:
    config = config_for(method)
    there = serve(
        config, SiteEngine(sites()), NAMES, "r1", "1.0", tmp_path / "server", ignore_line
    )
    data = config.data.model_copy(update={"dataset": str(hospitals)})
    here = run_config(config.model_copy(update={"data": data}), ignore_line)
    assert there.record.model_sha256 == here.record.model_sha256
    assert there.record.accuracy == here.record.accuracy
    assert there.record.accuracy["global"] is None


def test_every_owner_has_its_model_graph_and_predictions(sites: Make, tmp_path: Path) -> None:
    config = config_for("fedsage+neighgen")
    made = sites()
    serve(config, SiteEngine(made), NAMES, "r1", "1.0", tmp_path / "server", ignore_line)
    for site in made:
        folder = tmp_path / site.name / "r1"
        (model,) = load_models(folder)
        lines = (folder / "predictions.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == list(site.owned.ids)
        assert {line.split(",")[1] for line in lines[1:]} <= {"ill", "well"}
        assert isinstance(load_graph(folder / "mended.npz"), Graph)
        assert (folder / "neighgen.safetensors").stat().st_size > 0
        assert model.scale is not None and model.schema is not None
        assert "What leaves this house" in (folder / "what-leaves.txt").read_text()
        assert json.loads((folder / "settings.json").read_text())["run"]["method"]


def test_every_message_that_left_has_a_line(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(
        config_for("fedsage+neighgen"), engine, NAMES, "r1", "1.0", tmp_path / "s", ignore_line
    )
    for i, name in enumerate(NAMES):
        lines = (tmp_path / name / "r1" / "sent.jsonl").read_text().splitlines()
        sent = [json.loads(line) for line in lines]
        assert [one["procedure"] for one in sent] == [p for j, p in engine.log if j == i]
        assert all(len(one["sha256"]) == 64 and one["bytes"] > 0 for one in sent)


def test_no_cell_of_a_table_is_in_a_message(sites: Make, tmp_path: Path) -> None:
    """Ids and single values of the first owner, searched in every frame that left it."""
    made = sites()
    engine = SiteEngine(made)
    serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_line)
    tables = made[0].owned.tables
    assert tables is not None
    body = b"".join(frame for i, frame in engine.frames if i == 0)
    assert not any(identifier.encode() in body for identifier in tables.ids)
    x = made[0].keeper.owner.graph.x
    rows = [row.tobytes() for row in x]
    assert not any(row in body for row in rows)
    assert not any(value.tobytes() in body for value in tables.numbers.ravel())


def test_a_run_that_was_stopped_goes_on_from_the_last_round(
    sites: Make, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    config = config_for("fedsage+neighgen")
    whole: list[HistoryLine] = []
    wanted = serve(
        config, SiteEngine(sites()), NAMES, "whole", "1.0", tmp_path / "w", whole.append
    )
    for rounds in (1, 3, 5):
        seen: list[HistoryLine] = []

        def on_line(line: HistoryLine, seen: list[HistoryLine] = seen, n: int = rounds) -> None:
            seen.append(line)
            if len(seen) == n:
                raise Stop

        run, folder = f"after-{rounds}", tmp_path / f"server-{rounds}"
        with pytest.raises(Stop):
            serve(config, SiteEngine(sites()), NAMES, run, "1.0", folder, on_line)
        lines: list[HistoryLine] = []
        again = serve(config, SiteEngine(sites()), NAMES, run, "1.0", folder, lines.append)
        assert again.record.model_sha256 == wanted.record.model_sha256
        assert [line.loss for line in lines] == [line.loss for line in whole]


def test_another_version_is_named_on_both_sides(sites: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server has fedsage 2\.0, owner east has 1\.0"):
        serve(
            config_for("fedsage"), SiteEngine(sites()), NAMES, "r", "2.0", tmp_path, ignore_line
        )


def test_another_schema_is_named_on_both_sides(sites: Make, tmp_path: Path) -> None:
    made = sites()
    object.__setattr__(made[2].owned.tables.schema, "class_names", ("ill", "other"))  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"schema differs: owner east has .*, owner west has"):
        serve(config_for("fedsage"), SiteEngine(made), NAMES, "r", "1.0", tmp_path, ignore_line)


@pytest.mark.parametrize("method", ["globsage", "locsage", "oracle", "mine.py"])
def test_what_cannot_be_federated_is_refused(method: str, sites: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be run between separate owners"):
        serve(config_for(method), SiteEngine(sites()), NAMES, "r", "1.0", tmp_path, ignore_line)


def test_a_backbone_in_a_file_is_run_by_neither_side(sites: Make, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('this was run')")
    config = config_for("fedsage")
    model = config.model.model_copy(update={"backbone": str(file)})
    config = config.model_copy(update={"model": model})
    with pytest.raises(ConfigError, match="no code travels"):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", tmp_path, ignore_line)
    asked = Agreement("r", 0, "1.0", config.model_dump_json())
    with pytest.raises(PrivacyError, match="runs no code but fedsage's own"):
        sites()[0].agree(asked)


def test_an_owner_answers_what_was_agreed_and_nothing_else(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_line)
    site = engine.sites[0]
    for procedure in ("sketch_features", "count_class_links", "local_request", "no such thing"):
        with pytest.raises(PrivacyError, match="no part of the agreed run"):
            site.answer(procedure, encode(Ask(0)))


WRONG = {
    "another type": ("test_classifier", Ask(0), ProtocolError),
    "a larger classifier": (
        "local_update_c", ClassifierUpdate({"w": torch.ones(5, 5)}, {}, 1.0, 1.0), PrivacyError
    ),
    "not asked for": ("sketch_features", Sketch(torch.ones(3, 3)), PrivacyError),
    "class links": ("count_class_links", ClassLinks(torch.ones(2, 2)), PrivacyError),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_the_gate_refuses_what_does_not_fit(case: str, sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    serve(config_for("fedsage"), engine, NAMES, "r", "1.0", tmp_path / "s", ignore_line)
    procedure, message, error = WRONG[case]
    gate = engine.sites[0].gate
    before = (gate.folder / "sent.jsonl").read_text()
    with pytest.raises(error):
        gate.check(procedure, encode(message))
    with pytest.raises(ProtocolError):
        gate.check("test_classifier", b"garbage")
    assert (gate.folder / "sent.jsonl").read_text() == before
    gate.check("test_classifier", encode(Hits(1, 1, 1, 2)))


def test_a_round_without_an_owner_is_told_and_in_the_report(
    sites: Make, tmp_path: Path
) -> None:
    from dataclasses import asdict

    from fedsage.evaluation.results import Provenance, append_history, write_result
    from fedsage.protocol.engine import Miss
    from fedsage.report.page import page
    from fedsage.report.read import read_runs

    class Away(SiteEngine):
        """The third owner is away in the second round."""

        def carry(self, procedure, requests):  # type: ignore[no-untyped-def]
            ask = next(iter(requests.values()))
            if procedure.name == "local_update_c" and ask.t == 1 and 2 in requests:
                rest = {i: request for i, request in requests.items() if i != 2}
                return {**super().carry(procedure, rest), 2: Miss(2, procedure.name, "asleep")}
            return super().carry(procedure, requests)

    config = config_for("fedsage")
    lines: list[HistoryLine] = []
    engine = Away(sites(), least=2)
    found = serve(config, engine, NAMES, "r", "1.0", tmp_path / "s", lines.append)
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
    with pytest.raises(ProtocolError, match="2 of 3 owners gave an answer"):
        serve(config, Away(sites()), NAMES, "r2", "1.0", tmp_path / "s2", ignore_line)
