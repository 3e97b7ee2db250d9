"""What a hostile server asks an owner for, and does not get."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedsage.errors import PrivacyError
from fedsage.federation.owner.site import Site
from fedsage.mending.subspace import (
    Sketch,
    SketchUnits,
    Subspace,
    WholeSketch,
    in_whole,
)
from fedsage.protocol.agreement import Agreement, ColumnMeans, ColumnScale, Step
from fedsage.protocol.messages import Ask
from fedsage.protocol.wire import decode, encode
from tests.federation.conftest import config_for
from tests.small import HOWS, traffic_of

Make = Callable[[], list[Site]]


def joined(site: Site, method: str, how: str = "full") -> Site:
    """An owner that has agreed to a run and scaled its columns."""
    config = config_for(method, traffic=traffic_of(how, rank=1), data={"features": "raw"})
    settings = config.model_dump_json()
    site.answer("agree", encode(Agreement("r", 0, "1.0", settings, "{}")))
    numbers = site.owned.num_numbers
    scale = ColumnScale(torch.zeros(numbers).double(), torch.ones(numbers).double())
    site.answer("receive_scale", encode(scale))
    return site


def test_nothing_is_told_before_a_run_is_agreed_on(sites: Make) -> None:
    site = sites()[0]
    means = ColumnMeans(torch.zeros(site.owned.num_numbers).double())
    asked = {"column_sums": Ask(0), "column_squares": means, "able": Step("training", 0, False)}
    for name, request in asked.items():
        with pytest.raises(PrivacyError, match="not part of the agreed run"):
            site.answer(name, encode(request))


def test_a_mean_for_each_node_is_not_answered(sites: Make) -> None:
    """Two such questions that differ in one row would give that row exactly."""
    site = joined(sites()[0], "fedsage")
    nodes, numbers = site.owned.num_nodes, site.owned.num_numbers
    for mean in (torch.zeros(nodes, numbers), torch.zeros(numbers + 1), torch.zeros(1)):
        with pytest.raises(PrivacyError, match="would reveal single nodes"):
            site.answer("column_squares", encode(ColumnMeans(mean.double())))
    with pytest.raises(PrivacyError):
        broken = torch.full((numbers,), torch.nan).double()
        site.answer("column_squares", encode(ColumnMeans(broken)))
    site.answer("column_squares", encode(ColumnMeans(torch.zeros(numbers).double())))


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_going_back_in_time_does_not_win_back_sketches(how: str, sites: Make) -> None:
    site = joined(sites()[0], "fedsage+subspace", how)
    width = site.owned.names[0]
    told = 0

    def ask(k: int) -> bool:
        stream = torch.Generator().manual_seed(k)
        basis = torch.randn(width, 2, generator=stream)
        if how == "full":
            answer = site.answer("sketch_features", encode(Subspace(basis)))
            return bool(decode(Sketch, answer).product.any())
        site.answer("sketch_sizes", encode(in_whole(basis)))
        units = SketchUnits(1, torch.full((2,), -20, dtype=torch.int16))
        answer = site.answer("sketch_in_whole", encode(units))
        return bool(decode(WholeSketch, answer).product.any())

    first = torch.eye(width)[:, :2].contiguous()
    if how == "full":
        site.answer("mend_by_subspace", encode(Subspace(first)))
    else:
        site.answer("mend_by_directions", encode(in_whole(first)))
    for k in range(3 * site.owned.num_nodes):
        told += 2 * ask(k)
        site.answer("restore", encode(Step("training", 0, True)))
    assert 0 < told <= site.owned.num_nodes / 2


@pytest.mark.parametrize("how", HOWS)
def test_sketches_of_the_other_form_are_no_second_budget(how: str, sites: Make) -> None:
    """What the agreed run does not need is not answered, so that nothing counts apart."""
    site = joined(sites()[0], "fedsage+subspace", how)
    basis = torch.eye(site.owned.names[0])[:, :2].contiguous()
    others = {
        "full": {"sketch_sizes": in_whole(basis), "mend_by_directions": in_whole(basis)},
        "low-rank": {"sketch_features": Subspace(basis), "mend_by_subspace": Subspace(basis)},
    }
    for name, request in others[how].items():
        with pytest.raises(PrivacyError, match="not part of the agreed run"):
            site.answer(name, encode(request))


def test_a_procedure_of_a_user_s_file_takes_nobody_s_place(sites: Make, tmp_path: Path) -> None:
    from fedsage.federation.consent.own_files import allow
    from fedsage.registry import checksum

    file = tmp_path / "shadow.py"
    file.write_text(
        "import fedsage as fs\n"
        "@fs.procedure(phase='mending', owed=True)\n"
        "def finish(owner: fs.DataOwner, ask: fs.Ask) -> fs.Mended:\n"
        "    return fs.Mended()\n"
        "@fs.way_of_mending('shadow')\n"
        "def by_shadow(exchange: fs.Exchange) -> None:\n"
        "    exchange.all(finish, fs.Ask(0))\n"
    )
    site = sites()[0]
    allow(file, site.runs.parent)
    config = config_for("fedsage+")
    mend = config.mend.model_copy(update={"how": str(file)})
    settings = config.model_copy(update={"mend": mend}).model_dump_json()
    files = json.dumps({"mend.how": checksum(str(file))})
    site.answer("agree", encode(Agreement("r", 0, "1.0", settings, files)))
    assert site.door.asked("finish") is Site.finish
    assert "file that you allowed" in (site.folder / "what-leaves.txt").read_text()
