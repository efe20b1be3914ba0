"""README's example of a normalizer is one file: dropped into a copy of the package, nothing else needs a change."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = ("tests/normalizers/test_contract.py", "tests/analyses/attention/live/test_export.py")
ROOT = Path(__file__).parents[4]


@pytest.mark.exhaustive
def test_a_dropped_in_normalizer_keeps_the_contract(tmp_path):
    example = r"One file, `icl_lab/(normalizers/\w+\.py)`:\s+```python\n(.*?)```"
    ((name, text),) = re.findall(example, (ROOT / "README.md").read_text(), re.DOTALL)
    for part in ("icl_lab", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "icl_lab" / name).write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "-k", "square and not phi", *TESTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert "test_a_graph_equals_the_normalizer_in_torch[square] PASSED" in ran.stdout
    assert re.search(r"test_every_rule_keeps_the_contract\[\S*square", ran.stdout)
