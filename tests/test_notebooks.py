import jupytext
import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize("script", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_the_two_files_of_a_notebook_say_the_same_and_carry_no_outputs(script):
    notebook = jupytext.read(script.with_suffix(".ipynb"))
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in jupytext.read(script).cells
    ]
    assert not any(cell.get("outputs") for cell in notebook.cells)
