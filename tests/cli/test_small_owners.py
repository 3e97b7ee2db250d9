from __future__ import annotations

import pytest

from fedsage.cli.progress import announce_small_owners
from fedsage.config import load_config
from fedsage.runs.events import Event
from fedsage.runs.execute import run_config
from tests.small import SMALL


@pytest.mark.parametrize(("steps", "told"), [(None, False), (2.5, False), (0.5, True)])
def test_owners_with_few_nodes_are_told_of(
    steps: float | None, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    announce_small_owners(steps)
    assert ("traffic.how=full" in capsys.readouterr().err) is told


@pytest.mark.parametrize(("how", "steps"), [("full", None), ("low-rank", 3.0)])
def test_a_run_knows_how_many_steps_its_owners_take(how: str, steps: float | None) -> None:
    # three quarters of one batch, in each of four epochs
    events: list[Event] = []
    run_config(load_config(SMALL, {"traffic": {"how": how}}), events.append)
    assert [event.steps for event in events if event.what == "ready"] == [steps]
