from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fedsage.cli.main import exit_code

SMALL = (
    "--dataset synthetic --set synthetic.nodes=90 --set synthetic.features=40 "
    "--set synthetic.classes=3 --set model.widths=[8,4] --set classifier.rounds_c=2"
).split()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def fedsage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line in this process."""

    def call(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["fedsage", *words])
        code = exit_code()
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call
