"""The public interface: quick to import, complete, documented."""

import ast
import inspect
import subprocess
import sys

import pytest

import icl_lab as icl
from icl_lab import analyses, normalizers, tasks
from icl_lab.base.errors import LabError
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.spec import resolve

HEAVY = {"torch", "pandas", "matplotlib", "scipy", "click", "tqdm", "transformers", "numpy", "icl_lab.base.registry"}


IMPORTS = ["import icl_lab; icl_lab.__version__; hasattr(icl_lab, 'runs')", "from icl_lab import LabError"]


@pytest.mark.parametrize("line", IMPORTS)
def test_nothing_heavy_is_imported(line):
    words = [sys.executable, "-c", f"{line}; import sys; print(*sys.modules)"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert set(told.stdout.split()) & HEAVY == set()


@pytest.mark.parametrize("name", icl.__all__)
def test_every_public_name_is_there_and_documented(name):
    found = getattr(icl, name)
    assert inspect.getdoc(found)
    assert found.__module__.startswith("icl_lab.")
    if inspect.isclass(found) and found.__module__.startswith(("icl_lab.api", "icl_lab.execute")):
        for member, value in vars(found).items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_types_are_declared_for_every_public_name():
    """What mypy reads and what Python imports are one list."""
    tree = ast.parse(inspect.getsource(icl))
    (declared,) = [node for node in tree.body if isinstance(node, ast.If)]
    places = {alias.name: node.module.removeprefix("icl_lab.") for node in declared.body for alias in node.names}
    assert places == icl._PLACES


def test_families_of_parts_are_reached():
    assert icl.normalizers is normalizers
    assert icl.normalizers.registry.names() == normalizers.names()


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        icl.sweeep  # noqa: B018
    with pytest.raises(ImportError):
        from icl_lab import nothing_of_that_name  # noqa: F401


def test_lists_have_a_row_a_part():
    assert list(icl.list_tasks().index) == tasks.names()
    assert list(icl.list_analyses().index) == analyses.names()
    assert list(icl.list_presets().index) == list(PRESETS)
    assert {"softmax", "reweight"} <= set(icl.list_rules().index)


def test_normalizers_are_named_as_on_the_command_line(tmp_path):
    where = icl.Where(results=tmp_path, dry_run=True, progress=False, evidence=False)
    for said in ("softmax ssa:n=2,b=1", "softmax,ssa:b=1,n=2", ["softmax", "ssa:n=2,b=1"]):
        with pytest.raises(LabError, match="is not written: its runs are not all finished"):
            icl.compare("linear", said, "smoke", where=where)
    assert not list(tmp_path.iterdir())


def test_another_seed_is_answered_with_those_there(tmp_path):
    where = icl.Where(results=tmp_path, evidence=False)
    for seed in (0, 2):
        made = where.store().run(resolve("linear", "ssa", "smoke"), seed)
        made.begin()
    with pytest.raises(LabError, match=r"^linear/ssa/smoke has no stored run of seed 99; there: seeds 0, 2\.$"):
        icl.find("linear/ssa/smoke", seed=99, where=where)
