"""The examples of docs/inside-a-model.md run as printed, with the weights that the repository keeps."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "inside-a-model.md").read_text()
TRACE, PATCHING, *TOOLS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
(PRINTED,) = re.findall(r"^```text\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
# What must hold after an example of a tool, which sees the same activations.
HOLDS = {
    "nnsight": """
def put(x):
    x[:, -1] = good["layers.1.attention"][:, -1]
    return x
import torch
assert torch.equal(attention, good["layers.1.attention"])
assert torch.equal(patched, model.trace(corrupted, {"layers.1.attention": put})["answers"])
""",
    "captum": """
gap = (good["answers"] - bad["answers"])[:, -1, 0]
assert parts.shape == clean.shape and (parts.sum((1, 2)) - gap).abs().max() < 0.05 * gap.abs().max()
""",
    "bertviz": "",
    "circuitsvis": "",
}


def python(folder, *blocks):
    """Runs blocks one after another as a file: nnsight reads the source of what it runs."""
    (folder / "example.py").write_text("\n\n".join(blocks))
    kept = {name: value for name, value in os.environ.items() if name != "ICL_LAB_EVIDENCE"}
    paths = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    command = [sys.executable, "example.py"]
    environment = kept | {"PYTHONPATH": paths}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_patching_is_short():
    assert len([line for line in PATCHING.splitlines() if line.strip()]) <= 20


@pytest.mark.exhaustive
def test_patching_prints_what_the_page_says(tmp_path):
    pytest.importorskip("xarray", reason="xarray is not installed: pip install 'icl_lab[notebook]'")
    assert python(tmp_path, TRACE, "assert trace['layers.0.weights'].shape == (64, 4, 79, 79)", PATCHING) == PRINTED


@pytest.mark.exhaustive
@pytest.mark.parametrize("example", TOOLS, ids=lambda example: example.split()[1].split(".")[0])
def test_tools_run_as_the_page_says(example, tmp_path):
    tool = re.match(r"from (\w+)", example)[1]
    pytest.importorskip(tool, reason=f"{tool} is not installed, and no part of the package needs it")
    pytest.importorskip("xarray", reason="xarray is not installed: pip install 'icl_lab[notebook]'")
    python(tmp_path, TRACE, PATCHING, example, HOLDS[tool])


def test_every_tool_of_the_page_is_tried():
    assert [re.match(r"from (\w+)", example)[1] for example in TOOLS] == list(HOLDS)
