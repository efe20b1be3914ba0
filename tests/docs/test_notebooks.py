"""The notebooks of docs/: their outputs are those of their cells, small, and from nowhere in particular."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import icl_lab as icl

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 400_000  # bytes of a file

spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
executing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(executing)

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_four():
    assert len(NOTEBOOKS) >= 4


@each
def test_the_outputs_are_those_of_the_cells(path):
    """A cell that was changed since has outputs that are not its own: make notebooks."""
    notebook = json.loads(path.read_text())
    assert notebook["metadata"]["sources"] == executing.sources(notebook)
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert outputs
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/png" in shown
    assert not [each for each in outputs if "<Figure size" in json.dumps(each)]  # a picture that nobody sees
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@each
def test_a_notebook_is_small_and_names_no_machine(path):
    text = path.read_text()
    assert len(text.encode()) < LARGEST
    plain = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not re.search(r"/(home|root|tmp|work|Users)/\w", plain)


@each
def test_a_notebook_begins_with_title_and_import(path):
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
    assert any("import icl_lab as icl" in "".join(cell["source"]) for cell in cells)
    names = set(re.findall(r"\bicl\.(\w+)", "".join(line for cell in cells for line in cell["source"])))
    assert not [name for name in names if not hasattr(icl, name)]


@pytest.mark.exhaustive
@each
def test_a_notebook_runs_from_its_first_cell_to_its_last(path, monkeypatch):
    for library in ("nbclient", "ipykernel", "xarray"):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'icl_lab[notebook]'")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]))
    before = json.loads(path.read_text())
    done = executing.execute(before)
    told = {number for number, cell in enumerate(before["cells"]) if cell.get("outputs")}
    assert {number for number, cell in enumerate(done["cells"]) if cell.get("outputs")} == told
