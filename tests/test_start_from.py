"""Next month: a run that begins with the classifier and the generators of an earlier one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsage as fs
from fedsage.config import ModelConfig
from fedsage.errors import ConfigError
from fedsage.models.backbone import Shape, new_model
from fedsage.models.parameters import Parameters, parameters_of, sha256_of
from fedsage.models.warm_start import Places, carried_over, places_in
from fedsage.report.page import page
from fedsage.report.read import read_runs
from fedsage.rng import generator
from fedsage.runs.result import RunResult
from fedsage.tables.feature import Feature
from fedsage.tables.schema import Schema

SMALL: dict[str, dict[str, Any]] = {
    "model": {"widths": [12, 8]},
    "classifier": {"rounds_c": 3},
    "neighgen": {"rounds_gen": 2, "widths": [8, 6], "hidden": [10], "batch_size": 16},
}
NAMES = ("east", "west")


def write_month(root: Path, extra: bool, wards: str = "ABC") -> Path:
    """Two hospitals; next month has ten more patients each, perhaps in a new ward."""
    for k, name in enumerate(NAMES):
        stream, folder = generator(k, "month"), root / name
        folder.mkdir(parents=True)
        lines, links = ["id,age,ward,label"], ["source,target"]
        for v in range(50):
            ill, age, ward = stream.random() < 0.5, stream.normal(), stream.integers(len(wards))
            row = (
                f"{name}-{v},{50 + 9 * ill + age:.2f},{wards[ward]},{'ill' if ill else 'well'}"
            )
            links.append(f"{name}-{v},{name}-{stream.integers(max(v, 1))}")
            lines += [row] if extra or v < 40 else []
        count = 50 if extra else 40
        kept = [one for one in links[1:] if int(one.split("-")[1].split(",")[0]) < count]
        (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
        (folder / "edges.csv").write_text("\n".join([links[0], *kept]) + "\n")
        schema = f"""classes = ["ill", "well"]
[features]
age = {{ kind = "number" }}
ward = {{ kind = "category", categories = {list(wards)} }}
"""
        (folder / "schema.toml").write_text(schema)
    return root


def run_on(folder: Path, method: str = "fedsage", **more: Any) -> RunResult:
    settings = {**SMALL, **more.pop("settings", {})}
    return fs.run(fs.load_owners(folder), method, settings=settings, **more)


@pytest.fixture(scope="module")
def may(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of last month."""
    root = tmp_path_factory.mktemp("may")
    run_on(write_month(root / "data", extra=False), "fedsage+neighgen", out=root / "run")
    return root / "run"


class Own(torch.nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(num_features, 5)
        self.head = torch.nn.Linear(5, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.head(self.inside(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("backbone", ["graphsage", "gcn", "gat", "propagate", "mix", "own"])
def test_every_weight_of_what_remains_is_carried_over_and_no_other(backbone: str) -> None:
    named = fs.models.backbone.named(Own) if backbone == "own" else backbone
    model = ModelConfig(backbone=named, widths=(16, 8))

    def make(seed: int, d_x: int, d_y: int) -> Parameters:
        return parameters_of(new_model(Shape(d_x, d_y, model), generator(seed, "phi")))

    columns, classes = [2, -1, 0, 4], [1, 0, -1]  # of five features and two classes
    old, fresh = make(1, 5, 2), make(2, 4, 3)
    places = Places(np.array(columns), np.array(classes))
    found = carried_over(old, places, lambda d_x, d_y: make(2, d_x, d_y))
    assert found.keys() == fresh.keys()
    changed = 0
    for name, weight in found.items():  # sizes of features, classes and layers all differ
        assert weight.shape == fresh[name].shape
        for at in np.ndindex(*weight.shape):
            where = [
                columns[i] if size == 4 and old[name].shape[axis] == 5
                else classes[i] if size == 3 and old[name].shape[axis] == 2 else i
                for axis, (i, size) in enumerate(zip(at, weight.shape, strict=True))
            ]  # fmt: skip
            wanted = fresh[name][at] if min(where, default=0) < 0 else old[name][tuple(where)]
            assert weight[at] == wanted
            changed += bool(weight[at] != fresh[name][at])
    assert changed


@pytest.mark.slow
def test_the_first_weights_are_the_last_ones_of_the_earlier_run(
    may: Path, tmp_path: Path
) -> None:
    """Nothing is trained where the learning rate is next to nothing."""
    data = write_month(tmp_path / "june", extra=True)
    still = {"classifier": {"rounds_c": 1, "eta": 1e-30, "weight_decay": 0.0},
             "traffic": {"how": "full"}}  # fmt: skip
    found = run_on(data, start_from=may, settings=still)
    before = fs.load_result(may)
    assert sha256_of(found.model.phi) == sha256_of(before.model.phi)
    assert found.accuracy == found.record.accuracy_before
    assert found.record.started_from == str(may)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "low-rank"])
@pytest.mark.parametrize("method", ["fedsage", "fedsage+neighgen", "fedsage+shared", "locsage"])
def test_new_categories_get_fresh_weights_and_nobody_trained_on_is_tested(
    method: str, how: str, may: Path, tmp_path: Path
) -> None:
    data = write_month(tmp_path / "june", extra=True, wards="ACD")
    traffic = {"traffic": {"how": how, "rank": 2}}
    found = run_on(data, method, start_from=may, out=tmp_path / "run", settings=traffic)
    before = {
        (held.owner, held.ids[v])
        for held in fs.load_result(may).answering
        for v in held.graph.split.train  # type: ignore[union-attr]
    }
    for held in found.answering:
        split = held.graph.split
        assert split is not None and len(held.ids) == 50
        assert not any((held.owner, held.ids[v]) in before for v in (*split.val, *split.test))
    tested = [h.ids[v] for h in found.answering for v in h.graph.split.test]  # type: ignore[union-attr]
    assert any(int(one.split("-")[1]) >= 40 for one in tested)
    assert found.record.accuracy_before is not None
    assert 0 <= (found.record.accuracy_before["local"] or 0) <= 1
    text = page(read_runs([tmp_path / "run"]))
    assert "Since the earlier run" in text and str(may) in text


@pytest.mark.slow
def test_generators_begin_where_they_ended(may: Path, tmp_path: Path) -> None:
    data = write_month(tmp_path / "june", extra=True)
    still = {"neighgen": {**SMALL["neighgen"], "rounds_gen": 1, "local_steps": 1, "eta": 1e-30}}
    found = run_on(data, "fedsage+neighgen", start_from=may, settings=still)
    before = {held.owner: held.remembered for held in fs.load_result(may).answering}
    for held in found.answering:
        assert sha256_of(held.remembered) == sha256_of(before[held.owner])


@pytest.mark.slow
def test_a_stopped_run_that_began_with_another_goes_on_to_the_same_model(
    may: Path, tmp_path: Path
) -> None:
    data = write_month(tmp_path / "june", extra=True, wards="ACD")

    class Stop(Exception):
        pass

    def stop(event: Any) -> None:
        if event.phase == "training" and event.round == 1:
            raise Stop

    whole = run_on(data, "fedsage+neighgen", start_from=may)
    with pytest.raises(Stop):
        run_on(data, "fedsage+neighgen", start_from=may, out=tmp_path / "r", callbacks=[stop])
    again = run_on(data, "fedsage+neighgen", start_from=may, out=tmp_path / "r", resume=True)
    assert again.record.model_sha256 == whole.record.model_sha256
    assert again.record.resumed == 1


@pytest.mark.slow
def test_another_model_is_refused_with_the_setting_to_change(may: Path, tmp_path: Path) -> None:
    data = write_month(tmp_path / "june", extra=True)
    other = {"model": {"widths": [6, 8]}}
    with pytest.raises(ConfigError, match=r"model\.widths was \(12, 8\) and is now \(6, 8\)"):
        run_on(data, start_from=may, settings=other)
    other = {"neighgen": {**SMALL["neighgen"], "hidden": [11]}}
    with pytest.raises(ConfigError, match=r"neighgen\.hidden was \(10,\) and is now \(11,\)"):
        run_on(data, "fedsage+neighgen", start_from=may, settings=other)
    local = tmp_path / "local"
    run_on(data, "locsage", out=local)
    with pytest.raises(ConfigError, match="2 local models"):
        run_on(data, start_from=local)
    shutil.rmtree(local)
    with pytest.raises(fs.FedSageError, match="holds no trained model"):
        run_on(data, start_from=local)


def test_other_data_are_refused_and_what_changed_is_said(may: Path) -> None:
    model, where = fs.load_result(may).model, "may"
    assert model.schema is not None
    age, ward = model.schema.features
    more = replace(ward, categories=("A", "D"))
    now = Schema((age, more, Feature("dose", "number")), ("ill", "well", "dead"))
    found = places_in(model, where, now.num_features, now.class_names, now)
    assert found.columns.tolist() == [0, 1, -1, -1] and found.classes.tolist() == [0, 1, -1]
    assert [note.split(":")[0] for note in found.notes] == [
        "New classes since may, with fresh weights",
        "New columns of features since may, with fresh weights",
        "Gone columns of features since may, their weights are dropped",
    ]
    other = Schema((Feature("age", "date"), ward), ("ill", "well"))
    with pytest.raises(ConfigError, match=r"'age' with kind = 'number', but .* says 'date'"):
        places_in(model, where, other.num_features, other.class_names, other)
    with pytest.raises(ConfigError, match="none of today's classes: it has ill, well"):
        places_in(model, where, 4, ("a", "b"), None)
    with pytest.raises(ConfigError, match="was trained on 4 features, but there are 9 now"):
        places_in(model, where, 9, ("ill", "well"), None)
