"""The verb: a run of its own, a recorded one, the file, the section of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsage.audit.finding import ATTACKS
from fedsage.report.page import page
from fedsage.report.read import read_runs
from tests.cli.conftest import Call

NAMES = {
    "feature-presence", "label-distribution", "row-span", "rows-rebuilt", "sketch-membership",
    "neighgen-rows", "hits-oracle", "hostile-settings", "membership", "links", "poisoning",
    "decode-cost", "link-sums", "link-sums-own-rows", "singling-out", "empirical-epsilon",
    "unpaid-answers",
}  # fmt: skip
SMALL = [
    "--dataset", "synthetic", "--set", "synthetic.nodes=300", "--set", "synthetic.features=300",
    "--set", "synthetic.classes=3", "--set", "model.widths=[16, 8]", "--set",
    "classifier.rounds_c=4",
]  # fmt: skip


def test_every_promised_attack_is_there() -> None:
    assert {*ATTACKS.ours()} == NAMES


@pytest.mark.slow
def test_an_audit_from_the_command_line(fedsage: Call, tmp_path: Path) -> None:
    out = tmp_path / "audited"
    found = json.loads(fedsage("audit", *SMALL, "--quick", "--json", "--out", str(out)).out)
    assert found["privacy"] == "open" and found["left_out"] == 30
    assert {one["name"] for one in found["attacks"]} == NAMES
    for one in found["attacks"]:
        assert one["verdict"] in ("holds", "leaks", "not run")
        assert one["attacker"] and one["sees"] and one["figure"]
        assert (one["value"] is None) == (one["verdict"] == "not run")
    assert json.loads((out / "audit.json").read_text())["attacks"] == found["attacks"]
    text = page(read_runs([out]))
    assert "<h2>Audit</h2>" in text and "Attacks that succeeded" in text


@pytest.mark.slow
def test_a_recorded_run_is_audited_as_it_is(fedsage: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    fedsage("run", *SMALL, "--record", "--out", str(out))
    shown = fedsage("audit", str(out), "--quick").out
    assert all(name in shown for name in NAMES) and "no row was left out" in shown
    assert fedsage("audit", str(out), "--owners", "3").code == 2
    fedsage("run", *SMALL, "--out", str(tmp_path / "plain"))
    refused = fedsage("audit", str(tmp_path / "plain"))
    assert refused.code == 2 and "--record" in refused.err
