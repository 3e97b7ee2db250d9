"""Every cell of every notebook runs, from the first to the last."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent.parent / "docs").rglob("*.ipynb"))
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_from_start_to_end(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
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
    expected = {"quickstart": "fedsage+", "does-mending-help": "Queried globally, mending"}
    assert expected[path.stem] in printed
