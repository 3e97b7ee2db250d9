"""Every cell of every notebook runs, from the first to the last."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent.parent / "docs").rglob("*.ipynb"))
FEWER = {'"rounds_c": 20': '"rounds_c": 4', "SEEDS = 4": "SEEDS = 2"}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_from_start_to_end(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the synthetic graph, with fewer rounds and seeds than a reader has."""
    pytest.importorskip("ipykernel")
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.delenv("FEDSAGE_DATA", raising=False)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for many, few in FEWER.items():
            cell.source = cell.source.replace(many, few)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    expected = {"quickstart": "fedsage+", "does-mending-help": "Queried globally, "}
    assert expected[path.stem] in printed
