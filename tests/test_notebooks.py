"""
notebooks/: each text and its notebook have the same cells; outputs are there, small, without errors
or warnings.
"""

from pathlib import Path

import jupytext
import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MAX_BYTES = 600_000


def test_every_notebook_is_a_pair():
    assert {path.stem for path in NOTEBOOKS} == {path.stem for path in FOLDER.glob("*.py")}
    assert len(NOTEBOOKS) >= 8


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_pair_agrees(path):
    text = jupytext.read(path.with_suffix(".py"))
    notebook = nbformat.read(path, as_version=4)
    cells = [[(cell.cell_type, cell.source) for cell in each.cells] for each in (text, notebook)]
    assert cells[0] == cells[1], "make notebooks-update"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_outputs(path):
    """
    Cells were executed in order, print or show something, and end without errors and warnings.
    """
    assert path.stat().st_size <= MAX_BYTES
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert {output.output_type for output in outputs} <= {
        "stream",
        "display_data",
        "execute_result",
    }
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}
