from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import fedsage  # noqa: F401

SMALL = (
    "--dataset", "synthetic", "--set", "synthetic.nodes=120", "--set", "synthetic.classes=3",
    "--set", "classifier.rounds_c=3", "--set", "neighgen.rounds_gen=2", "--set",
    "neighgen.batch_size=20",
)  # fmt: skip
CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr",
)  # fmt: skip


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, two seeds, made by the command line."""
    from typer.testing import CliRunner

    from fedsage.cli.main import app

    folder = tmp_path_factory.mktemp("runs") / "compared"
    methods = "locsage,fedsage+neighgen,fedsage"
    arguments = ["compare", *SMALL, "--methods", methods, "--seeds", "2", "--out", str(folder)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return folder
