"""The wheel brings what the pages are made of."""

import zipfile
from pathlib import Path

import pytest

import icl_lab

ROOT = Path(icl_lab.__file__).parent.parent


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_wheel_brings_templates_scripts_and_libraries_with_their_licence(tmp_path):
    hatchling = pytest.importorskip("hatchling.builders.wheel", reason="no hatchling to build a wheel with")
    (wheel,) = hatchling.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    brought = set(zipfile.ZipFile(wheel).namelist())
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("templates", "assets", "vendor")
        for path in (ROOT / "icl_lab" / "site" / folder).iterdir()
    }
    assert there <= brought
    assert any("LICENSE" in name for name in there)
