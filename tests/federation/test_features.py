"""Owners agree on the form of their words by sums, and tell nothing else of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsage.config import Config
from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.errors import ConfigError, DataErrors, PrivacyError, ProtocolError
from fedsage.federation.before_training.features import (
    count_words,
    describe_features,
    own_form,
)
from fedsage.federation.consent.policy import Policy
from fedsage.federation.owner.site import Site
from fedsage.federation.server.serve import serve
from fedsage.models.classifier import load_models
from fedsage.protocol.agreement import Agreement, ColumnScale, FeatureLooks, FeatureSums
from fedsage.protocol.messages import Ask
from fedsage.protocol.wire import decode, encode
from fedsage.rng import generator
from fedsage.runs.events import ignore_event
from fedsage.runs.execute import run_config
from fedsage.tables.schema import read_schema, schema_content
from tests.federation.conftest import NAMES, TINY, SiteEngine, Stop, config_for, stop_after
from tests.small import traffic_of

Make = Callable[[], list[Site]]
WORDS = [f"w{k}" for k in range(30)]
SCHEMA = f"""classes = ["ill", "well"]
sparse = {WORDS}

[features.age]
kind = "number"
"""
WILLING = Policy({**TINY.rules, "features": ["unit", "tfidf", "auto"]})


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three owners with a column of numbers and counts of words."""
    root = tmp_path_factory.mktemp("clinics")
    (root / "schema.toml").write_text(SCHEMA)
    for k, name in enumerate(NAMES):
        draws, folder = generator(k, "clinic"), root / name
        folder.mkdir()
        ids = [f"{name}{v}" for v in range(50 + 10 * k)]
        nodes = [f"{i},{20 + draws.integers(60)},{'ill' if v % 2 else 'well'}"
                 for v, i in enumerate(ids)]  # fmt: skip
        (folder / "nodes.csv").write_text("\n".join(["id,age,label", *nodes]) + "\n")
        links = [f"{ids[v]},{ids[v - 2]}" for v in range(2, len(ids))]
        (folder / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")
        cells = [
            f"{i},{word},{draws.integers(1, 9)}"
            for v, i in enumerate(ids)
            for word in draws.choice(WORDS[v % 2 :: 2], 4, replace=False)
        ]
        (folder / "features.csv").write_text("\n".join(["id,feature,value", *cells]) + "\n")
    return root


@pytest.fixture
def sites(clinics: Path, tmp_path: Path) -> Make:
    def make() -> list[Site]:
        keys = known_keys(range(len(NAMES)))
        return [
            Site(n, read_owned(clinics / n), tmp_path / n, "1.0", print, keys[i], WILLING)
            for i, n in enumerate(NAMES)
        ]

    return make


def settings_for(form: str, level: str = "sums", method: str = "fedsage") -> Config:
    return config_for(
        method, traffic=traffic_of("low-rank", rank=1), privacy={"level": level},
        data={"features": form},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", ["auto", "tfidf"])
def test_the_model_is_the_one_of_a_run_in_one_process(
    form: str, sites: Make, clinics: Path, tmp_path: Path
) -> None:
    config = settings_for(form, method="fedsage+subspace")
    there = serve(config, SiteEngine(sites()), NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    data = config.data.model_copy(update={"dataset": str(clinics)})
    plain = config.privacy.model_copy(update={"level": "open"})
    here = run_config(config.model_copy(update={"data": data, "privacy": plain}))
    assert there.record.model_sha256 == here.record.model_sha256
    assert there.record.feature_form == here.record.feature_form != "auto"
    (kept,) = load_models(tmp_path / "east" / "r")
    for model in (kept, there.model):
        ours = here.model.form
        assert (model.form.name, model.form.first) == (ours.name, 1)
        assert model.form.length == ours.length
        assert (model.form.weights == ours.weights).all()


def test_a_schema_may_say_the_form(clinics: Path, tmp_path: Path) -> None:
    """``auto`` takes it in one process; an owner refuses a run with another form."""
    place = tmp_path / "clinics"
    shutil.copytree(clinics, place)
    (place / "schema.toml").write_text('sparse_form = "log"\n' + SCHEMA)
    assert schema_content(read_schema(place / "schema.toml"))["sparse_form"] == "log"

    def run_with(form: str) -> str:
        config = settings_for(form, level="open")
        data = config.data.model_copy(update={"dataset": str(place)})
        return run_config(config.model_copy(update={"data": data})).record.feature_form

    assert run_with("auto") == "log"
    with pytest.raises(ConfigError, match=r"data\.features is 'unit'.*features=log"):
        run_with("unit")
    with pytest.raises(DataErrors, match='Write "any", "raw"'):
        (place / "wrong.toml").write_text('sparse_form = "auto"\n' + SCHEMA)
        read_schema(place / "wrong.toml")
    keys = known_keys(range(len(NAMES)))
    own = [
        Site(n, read_owned(place / n), tmp_path / n, "1.0", print, keys[i], WILLING)
        for i, n in enumerate(NAMES)
    ]
    with pytest.raises(ConfigError, match=r"Start the run with --set data\.features=log"):
        serve(settings_for("auto"), SiteEngine(own), NAMES, "r", "1.0", tmp_path / "s",
              ignore_event)  # fmt: skip


@pytest.mark.slow
def test_a_run_that_was_stopped_has_the_same_form_and_model(
    sites: Make, tmp_path: Path
) -> None:
    config, place = settings_for("auto"), tmp_path / "s"
    with pytest.raises(Stop):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", place, stop_after(2))
    engine = SiteEngine(sites())
    ended = serve(config, engine, NAMES, "r", "1.0", place, ignore_event)
    assert describe_features.name not in {name for _, name in engine.log}  # it was kept
    whole = serve(
        config, SiteEngine(sites()), NAMES, "other", "1.0", tmp_path / "t", ignore_event
    )
    assert ended.record.model_sha256 == whole.record.model_sha256


@pytest.mark.slow
def test_the_server_sees_no_owner_s_lengths_or_counts(sites: Make, tmp_path: Path) -> None:
    """What leaves is not the owner's own part, and differs although the data do not."""
    seen: dict[str, list[object]] = {describe_features.name: [], count_words.name: []}
    made: list[Site] = []
    for run in ("r", "again"):
        made = sites()
        engine = SiteEngine(made)
        serve(
            settings_for("tfidf"), engine, NAMES, run, "1.0", tmp_path / f"s{run}", ignore_event
        )
        for asked, (i, frame) in zip(engine.log, engine.frames, strict=True):
            if asked[1] == describe_features.name and not i:
                seen[asked[1]].append(decode(FeatureLooks, frame))
            if asked[1] == count_words.name and not i:
                seen[asked[1]].append(decode(count_words.reply, frame).count.tolist())
    own = made[0].owned
    assert describe_features.function(own, Ask(0)) not in seen[describe_features.name]
    looks = seen[describe_features.name]
    assert looks[0] != looks[1]
    counts = np.array(seen[count_words.name])
    true = count_words.function(own, Ask(0)).count.numpy()
    assert ((counts == true).mean(axis=1) < 0.2).all() and (counts[0] != counts[1]).any()


def test_words_are_not_counted_where_the_server_sees_each_owner(
    sites: Make, tmp_path: Path
) -> None:
    config = settings_for("tfidf", "open")
    with pytest.raises(ConfigError, match=r"data\.features is 'tfidf'"):
        serve(config, SiteEngine(sites()), NAMES, "r", "1.0", tmp_path / "s", ignore_event)


def test_an_owner_refuses_sums_that_are_smaller_than_its_part(sites: Make) -> None:
    """A server that makes up sums cannot weigh words as it likes, or hide all but one."""
    owned, config = sites()[0].owned, settings_for("tfidf")
    looks = describe_features.function(owned, Ask(0))
    counts = count_words.function(owned, Ask(0)).count
    assert own_form(config, FeatureSums(looks, counts), owned).name == "tfidf"
    for made_up in (
        FeatureSums(replace(looks, length=looks.length // 2), counts),
        FeatureSums(looks, torch.zeros_like(counts)),
        FeatureSums(looks, counts[:-1]),
    ):
        with pytest.raises(PrivacyError, match="no sums"):
            own_form(config, made_up, owned)


@pytest.mark.slow
def test_nothing_is_told_of_features_that_stay_as_they_are(sites: Make, tmp_path: Path) -> None:
    engine = SiteEngine(sites())
    config = settings_for("raw")
    made = [replace_policy(site) for site in engine.sites]
    serve(config, SiteEngine(made), NAMES, "r", "1.0", tmp_path / "s", ignore_event)
    words = (tmp_path / "east" / "r" / "what-leaves.txt").read_text()
    assert "summed length" not in words


def replace_policy(site: Site) -> Site:
    """The same owner with a policy that allows features as they are."""
    site._policy = TINY
    return site


def test_an_owner_does_not_train_before_it_knows_the_form(sites: Make) -> None:
    one, config = sites()[0], settings_for("auto")
    agreement = Agreement("r", 0, "1.0", config.model_dump_json(), "{}")
    one.answer("agree", encode(agreement))
    nothing = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(ProtocolError, match="form of features"):
        one.answer("receive_scale", encode(ColumnScale(nothing, nothing + 1)))
