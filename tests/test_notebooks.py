import jupytext
import pytest

from tests.conftest import ROOT

SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
#: Of a notebook with its outputs, in bytes.
LARGEST = 300_000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_two_files_of_a_notebook_say_the_same_and_outputs_are_there(script):
    path = script.with_suffix(".ipynb")
    notebook = jupytext.read(path)
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in jupytext.read(script).cells
    ]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert outputs
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < LARGEST


def test_every_notebook_is_in_the_list():
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{script.stem}`" in text for script in SCRIPTS)
