"""What a host of the repository runs: targets that the Makefile has, and no address of a host."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[1]


def test_a_tag_is_released_by_the_makefile():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    made = yaml.safe_load(text)
    assert made[True] == {"push": {"tags": ["v*"]}}  # YAML reads "on" as true
    runs = [step.get("run", "") for step in made["jobs"]["release"]["steps"]]
    targets = [target for run in runs for target in re.findall(r"\bmake ([a-z-]+)", run)]
    assert targets == ["release"]
    assert re.search(r"(?m)^release: ", (ROOT / "Makefile").read_text())
    kept = [
        step["with"]["path"] for step in made["jobs"]["release"]["steps"] if "upload-artifact" in step.get("uses", "")
    ]
    assert kept == ["dist/*"]
    assert not re.search(r"https?://|/home/|/work/", text)
