"""The arena: equal terms, chosen on validation nodes, resumable; its ranks and its page."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsage.arena.contest import ALL, TUNING, Contest, Ring, entrant, nested, shares_of, trials
from fedsage.arena.hold import Standing, chosen_of, differences, hold, ranks
from fedsage.arena.page import in_words, skew_sections
from fedsage.arena.protocols import protocol, protocols
from fedsage.cli.arena import held, worse
from fedsage.config import load_config
from fedsage.errors import ConfigError, FedSageError
from fedsage.methods import all_methods, check_options, find_method
from fedsage.protocol.owner import DataOwner
from fedsage.reproduce.cells import Cell, fingerprint, run_cell
from fedsage.runs.setup import alone
from tests.small import SMALL

SETTINGS = {key: value for key, value in SMALL.items() if key != "data"}
RING = Ring("synthetic", 3, "random", "60/20/20")


def contest(*names: str, budget: int = 1, rings: tuple[Ring, ...] = (RING,)) -> Contest:
    return Contest([entrant(name) for name in names], rings, range(2), budget, SETTINGS)


def standing(
    name: str,
    values: list[float],
    validation: float,
    moments: Any = "own",
    seeds: tuple[int, ...] = (0, 1),
    ring: Ring = RING,
) -> Any:
    records = [
        {"seed": seed, "accuracy": {"global": None, "local": one}, "validation": validation}
        for seed, one in zip(seeds, values, strict=True)
    ]
    return Standing(entrant(name), ring, moments, {}, [], records)


@pytest.mark.parametrize("name", ALL)
def test_every_entrant_has_the_same_number_of_trials_and_begins_with_the_usual(
    name: str,
) -> None:
    method = entrant(name).found
    tried = trials(method, 3)
    assert len(tried) == 3 and tried[0] == {
        key: value[0] for key, value in method.search.items()
    }
    assert len({json.dumps(point) for point in tried}) == 3
    for point in tried:  # each is a setting that the method really has
        Contest([], [], [], 1, SETTINGS).config(entrant(name), RING, "own", point, 0)
        [(key, eta)] = [one for one in point.items() if one[0].startswith("classifier.eta")]
        assert nested(point)["classifier"][key.removeprefix("classifier.")] == eta


def test_the_usual_values_of_a_search_are_those_of_its_method() -> None:
    for name in ALL:
        method = entrant(name).found
        for key, values in method.search.items():
            section, option = key.split(".")
            if section == "method":
                assert values[0] == method.options[option], name


def test_settings_are_chosen_by_validation_nodes_and_never_on_seeds_that_count() -> None:
    seen = {1: 0.5, 2: 0.7, 3: 0.7}
    tried = [{"settings": {"classifier.eta": k}, "validation": v} for k, v in seen.items()]
    assert chosen_of(tried, {"classifier.eta": 3}) == {"classifier.eta": 2}
    assert chosen_of([], {"classifier.eta": 3e-3}) == {"classifier.eta": 3e-3}
    assert TUNING >= 100


@pytest.mark.slow
def test_a_contest_is_fair_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    fight, seen = contest("fedsage+", "fedprox@gcn", "fedgta", "locsage", budget=2), []

    def stop_after_five(done: int, total: int, cell: Cell) -> None:
        seen.append(cell)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hold(fight, tmp_path / "cells", stop_after_five)
    again: list[Cell] = []
    standings = hold(fight, tmp_path / "cells", lambda done, total, cell: again.append(cell))
    assert len(again) + len(seen) == (2 + 2) * (2 * 3 + 1)  # trials and seeds, each run once
    for one in standings:
        assert [record["seed"] for record in one.records] == [0, 1]
        best = max(trial["validation"] for trial in one.trials)
        chosen = next(t for t in one.trials if t["settings"] == one.point)
        assert chosen["validation"] == best
    splits = [
        [[line["train"] for line in r["per_owner"]] for r in one.records] for one in standings
    ]
    assert all(one == splits[0] for one in splits)
    assert {one.who.name for one in standings if one.moments == "averaged"} == {
        "fedsage+", "fedprox@gcn", "fedgta"
    }  # fmt: skip

    found = held(fight, tmp_path, 1, None)
    row = next(row for row in found["rows"] if row["method"] == "fedgta")
    assert row["own"]["local"] == row["local"] and row["seeds"] == [0, 1]
    assert row["shared"]["global"]["mean"] is not None and row["bytes"] > 0
    assert row["differences"]["against"] == "fedsage+"
    alone = next(row for row in found["rows"] if row["method"] == "locsage")
    assert alone["shared"]["local"]["mean"] is None and alone["bytes"] == 0
    assert json.loads((tmp_path / "arena.json").read_text())["rows"] == found["rows"]
    page = (tmp_path / "report.html").read_text()
    assert "Ranks" in page and "fedprox@gcn" in page and "95% intervals" in page


@pytest.mark.slow
def test_owners_of_earlier_runs_do_not_stay_in_memory(tmp_path: Path) -> None:
    one = contest("fedsage")
    for seed in range(3):
        config = one.config(one.entrants[0], RING, "averaged", {}, seed)
        run_cell(config, tmp_path / f"{fingerprint(config)}.json")
    assert sum(type(thing) is DataOwner for thing in gc.get_objects()) <= RING.owners


@pytest.mark.slow
def test_stress_is_a_curve_with_settings_of_the_calm_ring(tmp_path: Path) -> None:
    rings = (RING, *worse([RING], "noisy_labels", "0.3,0.6"))
    found = held(contest("fedsage", rings=rings), tmp_path, 1, None)
    assert [row["stress"] for row in found["rows"][::2]] == [
        {}, {"noisy_labels": 0.3}, {"noisy_labels": 0.6}
    ]  # fmt: skip
    assert "Noisy labels" in (tmp_path / "report.html").read_text()
    with pytest.raises(ConfigError, match="shares between 0 and 1"):
        worse([RING], "noisy_labels", "30")


def test_owners_of_several_skews_make_a_curve_and_of_one_none() -> None:
    rings = [replace(RING, partition=f"label:{beta}") for beta in ("0.1", "0.5", "1", "10")]
    values = (0.9, 0.5, 0.52, 0.51)
    all_of_them = [
        standing("locsage", [value, value + 0.02], 0.5, ring=ring)
        for ring, value in zip(rings, values, strict=True)
    ]
    assert skew_sections(all_of_them[:1], ["locsage"]) == []
    [section] = skew_sections(all_of_them, ["locsage"])
    [figure] = section.blocks[0].figures
    assert [row[0] for row in figure.sheet.rows] == [10, 50, 100, 1000]
    assert figure.sheet.rows[0][1] == pytest.approx(0.91)
    assert figure.says == ""  # the first point is not cut off, as first rounds may be


@pytest.mark.slow
def test_the_rival_on_the_page_takes_part(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "arena.md").read_text()
    file = tmp_path / "my_rival.py"
    file.write_text(page.split("```python\n# my_rival.py\n")[1].split("```")[0])
    found = held(contest("fedsage", str(file), budget=2), tmp_path, 1, None)
    mine = [row for row in found["rows"] if row["method"] == "fedavgm"]
    assert len(mine) == 2 and all(len(row["trials"]) == 2 for row in mine)
    assert mine[0]["settings"]["method.beta"] in (0.9, 0.5)


WILD = """
import fedsage as fs

@fs.method("wild")
class WildOwner(fs.DataOwner):
    def local_update_c(self, ask: fs.Ask) -> fs.ClassifierUpdate:
        for weight in self.model.parameters():
            weight.data *= float("nan")
        return super().local_update_c(ask)
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_method_that_fails_is_told_and_the_others_go_on(tmp_path: Path, jobs: int) -> None:
    file = tmp_path / "wild.py"
    file.write_text(WILD)
    found = held(contest(str(file), "locsage"), tmp_path, jobs, None)
    assert {row["method"] for row in found["rows"]} == {"locsage"}
    assert {one["method"] for one in found["failed"]} == {"wild"}
    assert sorted(one["seed"] for one in found["failed"]) == [0, 0, 1, 1]  # own and averaged
    assert "Training diverged" in found["failed"][0]["why"]
    page = (tmp_path / "report.html").read_text()
    assert "Did not end" in page and "Training diverged" in page
    with pytest.raises(FedSageError, match="Training diverged"):
        held(contest(str(file)), tmp_path / "alone", 1, None)


COUNTS = """
import fedsage as fs

@fs.method("counting", options={{"share": 1.0}}, search={{"method.share": (1.0, 0.5)}})
class Counting(fs.ByModels):
    started = 0

    def start(self, classifier):
        self.started += 1
        assert self.started == 1

    def combine(self, all_phi, weights):
        share = self.exchange.plan.config.method["share"]
        return {{name: one * share * {factor} for name, one in all_phi[0].items()}}
"""


@pytest.mark.slow
def test_runs_of_a_file_that_has_changed_since_are_run_again(tmp_path: Path) -> None:
    file, seen = tmp_path / "counting.py", []

    def note(done: int, total: int, cell: Cell) -> None:
        seen.append(cell)

    for factor, runs in ((1.0, 4), (1.0, 0), (0.5, 4)):
        file.write_text(COUNTS.format(factor=factor))
        hold(contest(str(file)), tmp_path / "cells", note)
        assert len(seen) == runs, factor
        seen.clear()


def test_kept_runs_know_what_is_in_users_files(tmp_path: Path) -> None:
    data = tmp_path / "mine.npz"
    code = tmp_path / "model.py"

    def mark() -> str:
        given = {"data": {"dataset": str(data)}, "model": {"backbone": str(code)}}
        return fingerprint(load_config(given))

    marks = []
    for content in ("a", "b", "a"):
        code.write_text(content)
        data.write_bytes(b"1")
        os.utime(data, ns=(5, 5))
        marks.append(mark())
    os.utime(data, ns=(6, 6))
    assert marks[0] == marks[2] != marks[1] and mark() != marks[2]


BROKEN = """
import fedsage as fs

@fs.method("broken")
class Broken(fs.DataOwner):
    def local_update_c(self, ask: fs.Ask) -> fs.ClassifierUpdate:
        return 1 / 0
"""


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_mistake_in_a_user_s_file_is_told_with_its_line(tmp_path: Path, jobs: int) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    found = held(contest(str(file), "locsage"), tmp_path, jobs, None)
    assert {row["method"] for row in found["rows"]} == {"locsage"}
    told = f"ZeroDivisionError in {file}, line 7: division by zero"
    assert {one["why"] for one in found["failed"]} == {told}


def test_what_is_set_for_all_is_not_tried(tmp_path: Path) -> None:
    entrants = [entrant("fedprox"), entrant("fedsage")]
    settings = SETTINGS | {"method": {"mu": 50.0}}
    fight = Contest(entrants, [RING], range(1), 1, settings)
    prox, plain = (fight.config(who, RING, "own", fight.trials(who)[0], 0) for who in entrants)
    assert prox.method["mu"] == 50.0 and plain.method.values == {}
    assert all("method.mu" not in point for point in fight.trials(entrants[0]))
    with pytest.raises(ConfigError, match="fedprox has only 3 settings"):
        Contest(entrants, [RING], range(1), 4, settings)
    with pytest.raises(ConfigError, match=r"a setting 'method.nu'. Did you mean 'method.mu'"):
        Contest(entrants, [RING], range(1), 1, SETTINGS | {"method": {"nu": 1.0}})


def test_what_the_arena_sets_itself_is_refused() -> None:
    for section, key in (("classifier", "moments"), ("data", "train"), ("run", "seed")):
        with pytest.raises(ConfigError, match=f"sets '{section}.{key}' itself. Use "):
            Contest([entrant("fedsage")], [RING], range(1), 1, {section: {key: "x"}})


def test_a_learning_rate_for_all_is_globsage_s_too() -> None:
    whole = Contest([entrant("globsage")], [RING], range(1), 1, {"classifier": {"eta": 0.02}})
    [point] = whole.trials(whole.entrants[0])
    config = whole.config(whole.entrants[0], RING, "own", point, 0)
    assert point == {} and alone(config, "whole").classifier.eta == 0.02
    usual = contest("globsage")
    config = usual.config(usual.entrants[0], RING, "own", usual.trials(usual.entrants[0])[0], 0)
    assert alone(config, "whole").classifier.eta == 1e-3


def test_settings_in_words_are_numbers_or_words_and_never_the_same_twice() -> None:
    given = {"method.eta": 0.01, "classifier.eta": 3e-3, "links.others": "nothing"}
    assert in_words(given) == "method.eta=0.01, classifier.eta=0.003, others=nothing"
    assert in_words({"method.mu": 1.0, "classifier.eta": 3e-3}) == "mu=1, eta=0.003"


def test_tables_and_page_show_every_setting_that_ours_may_choose(tmp_path: Path) -> None:
    for name in ALL:
        for point in trials(entrant(name).found, 3):
            assert all(part.count("=") == 1 for part in in_words(point).split(", "))


def test_a_run_whose_file_changes_meanwhile_is_told_and_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "moving.py"
    file.write_text(
        "import pathlib\n"
        + BROKEN.replace("1 / 0", "self.moved(ask)")
        + f"""
    def moved(self, ask: fs.Ask) -> fs.ClassifierUpdate:
        path = pathlib.Path({str(file)!r})
        path.write_text(path.read_text() + "# moved")
        return super().local_update_c(ask)
"""
    )
    found = held(contest(str(file), "locsage"), tmp_path, 1, None)
    assert {row["method"] for row in found["rows"]} == {"locsage"}
    assert "changed while it ran" in found["failed"][0]["why"]


def test_two_methods_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.py" for name in "ab"]
    for file in files:
        file.write_text(BROKEN + f"# {file}")
    with pytest.raises(ConfigError, match="Two methods are called 'broken'"):
        contest(*map(str, files))


def test_a_file_that_is_no_python_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "open.py"
    file.write_text("import fedsage\nx = (\n")
    with pytest.raises(ConfigError, match=r"open\.py, line 2: '\(' was never closed"):
        entrant(str(file))


def test_settings_of_a_method_are_checked_when_its_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "typo.py"
    given = '("broken", options={"mu": 1.0}, search={"method.nu": (1.0,)})'
    file.write_text(BROKEN.replace('("broken")', given))
    with pytest.raises(ConfigError, match=r"no such setting exists\. Did you mean 'method.mu'"):
        entrant(str(file))
    with pytest.raises(ConfigError, match=r"is .one.\. Give a number"):
        check_options("mine", {"mu": "one"}, {})


def test_methods_are_listed_with_their_own_settings() -> None:
    assert "method.mu=0.01" in all_methods()["fedprox"]


def test_equal_ones_share_their_rank_and_each_has_its_better_column() -> None:
    found = ranks(
        [
            standing("fedsage", [0.7, 0.9], 0.5), standing("fedprox", [0.7, 0.8], 0.6),
            standing("fedprox", [0.1, 0.1], 0.5, "averaged"),
            standing("moon", [0.6, 0.95], 0.5),
        ],
        "local",
    )  # fmt: skip
    assert {name: [rank for _, rank in each] for name, each in found.items()} == {
        "fedsage": [1.5, 2.0], "fedprox": [1.5, 3.0], "moon": [3.0, 1.0]
    }  # fmt: skip


def test_ranks_leave_out_where_not_all_took_part() -> None:
    elsewhere = Ring("synthetic", 5, "random", "60/20/20")
    found = ranks(
        [
            standing("fedsage", [0.7, 0.9], 0.5), standing("moon", [0.8], 0.5, seeds=(1,)),
            standing("fedsage", [0.7, 0.9], 0.5, ring=elsewhere),
        ],
        "local",
    )  # fmt: skip
    assert found == {
        "fedsage": [(f"{RING.words}, seed 1", 1.0)], "moon": [(f"{RING.words}, seed 1", 2.0)]
    }  # fmt: skip


def test_differences_are_of_the_seeds_that_both_have() -> None:
    base = standing("fedsage", [0.5, 0.9], 0)
    one = standing("fedprox", [1.0, 0.7], 0, seeds=(1, 2))
    assert differences(one, [base, one])["local"]["mean"] == pytest.approx(0.1)
    other = standing("moon", [0.7], 0, seeds=(2,))
    assert differences(other, [base, other])["local"] is None


def test_where_the_first_entrant_has_not_run_there_is_no_difference() -> None:
    base, one = (
        standing("fedsage", [0.5, 0.9], 0, "averaged"),
        standing("locsage", [0.6, 1.0], 0),
    )
    found = differences(standing("globsage", [0.7, 0.8], 0), [base, one])
    assert found == {"against": "fedsage", "global": None, "local": None}


def test_differences_are_paired_by_seed() -> None:
    base, one = standing("fedsage", [0.5, 0.9], 0), standing("fedprox", [0.6, 1.0], 0)
    found = differences(one, [base, one])
    assert found["local"]["mean"] == pytest.approx(0.1)
    assert found["local"]["low"] == pytest.approx(0.1) and found["global"] is None
    assert differences(base, [base, one])["local"] is None


def test_protocols_have_rings_and_say_where_their_numbers_come_from() -> None:
    pub = protocol("fedpub")
    assert {(ring.owners, ring.partition, ring.split) for ring in pub.rings} == {
        (owners, "metis", "20/40/40") for owners in (5, 10, 20)
    }  # fmt: skip
    told = pub.value(Ring("cora", 10, "metis", "20/40/40"), "fedpub")
    assert told is not None and told["low"] <= told["high"] and told["from"]
    assert pub.value(Ring("cora", 5, "metis", "20/40/40"), "fedpub") is None
    for one in protocols().values():
        assert one.about and all(0 < row["low"] <= row["high"] < 1 for row in one.printed)
    with pytest.raises(ConfigError, match="Did you mean 'fedpub'"):
        protocol("fedpup")


def test_what_makes_no_contest_is_refused() -> None:
    for split in ("60/40", "60/0/40", "50/20/20", "a/b/c"):
        with pytest.raises(ConfigError, match="add up to 100"):
            shares_of(split)
    assert shares_of("20/40/40") == (0.2, 0.4)
    with pytest.raises(ConfigError, match="Unknown method"):
        entrant("fedpro@gcn")
    with pytest.raises(ConfigError, match="Unknown backbone"):
        entrant("fedprox@gnc")
    assert find_method("fedpub").personal


def test_a_budget_that_not_all_can_use_up_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fedsage has only 3 settings .* at most 3"):
        contest("fedprox", "fedsage", budget=4)
    assert len(trials(contest("fedprox", budget=4).entrants[0].found, 4)) == 4
