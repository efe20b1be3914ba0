"""The architecture: folders lie on floors, imports point down, and each outside library enters by its door."""

import ast
import functools
from pathlib import Path

import pytest

import icl_lab

ROOT = Path(icl_lab.__file__).parent

# Lowest floor first: a folder, or a file beside them. Code may import from lower floors and from its own folder.
# ``__init__`` is that of the package itself: what users import.
FLOORS = "base < tasks normalizers figures < model < training < runs < pipeline < comparison < analyses"
FLOORS += " < claims testing transformers < execute < api < __init__ < extras < cli < __main__"
FLOOR = {name: height for height, floor in enumerate(FLOORS.split(" < ")) for name in floor.split()}
OPEN = ("tasks", "normalizers", "analyses")  # families: a file knows its base, never a sibling
BASES = {
    "tasks": "base capabilities declared drawing estimators functions pictures prompt shifts symbols texts wording",
    "normalizers": "base second_order starts",
    "analyses": "attention_rows findings frame profiles runner",
}
DOORS = {
    "pandas": {"base", "api"},  # api names the type that it returns
    "matplotlib": {
        *("figures", "runs", "comparison", "analyses", "claims", "testing", "execute", "api", "extras"),
    },  # all but figures name the type that they return
    "PIL": {"figures", "tasks"},
    "click": {"cli"},
    "tqdm": {"execute"},
    "entmax": {"normalizers"},
    "jinja2": {"comparison", "extras"},
    "filelock": {"runs"},
    "safetensors": {"runs", "transformers"},
    "pyarrow": {"runs"},
    "transformers": {"transformers", "extras"},
    "tokenizers": {"tasks", "extras"},
    "huggingface_hub": {"runs", "transformers"},
    "ray": {"execute"},
    "sklearn": {"tasks"},
}
TORCH = {ROOT / "base" / "rng.py", ROOT / "base" / "rescale.py"}  # of the folders below, the only files that import it
WITHOUT_TORCH = {"base", "figures"}
STATISTICS = ROOT / "comparison" / "statistics.py"


def modules():
    return sorted(ROOT.rglob("*.py"))


def part(path):
    """The folder of a module, or its own name where it lies beside the folders."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "icl_lab" else [module]


def target(name):
    """The folder that an import points to: ``__init__`` for the package itself and its names, empty for a library."""
    package, _, inside = name.partition(".")
    folder = inside.partition(".")[0]
    return "" if package != "icl_lab" else folder if folder in FLOOR else "__init__"


@functools.cache
def all_imports():
    """The modules of the package, and what each imports."""
    return {path: list(imports(path)) for path in modules()}


@pytest.mark.slow
def test_imports_point_down():
    assert {part(path) for path in all_imports()} <= set(FLOOR), "a package has no floor yet; give it one in this file"
    found = []
    for path, names in all_imports().items():
        here = part(path)
        for name in names:
            there = target(name)
            if there not in ("", here) and FLOOR[there] >= FLOOR[here]:
                found.append(f"{path.relative_to(ROOT)} may not import icl_lab.{there}")
    assert found == []


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("import icl_lab", "__init__"),
        ("import icl_lab as icl", "__init__"),
        ("from icl_lab import __version__", "__init__"),
        ("from icl_lab import tasks", "tasks"),
        ("from icl_lab.base import rng", "base"),
        ("import torch", ""),
    ],
)
def test_an_import_of_the_package_is_an_arrow(line, folder, tmp_path):
    (tmp_path / "module.py").write_text(line)
    assert [target(name) for name in imports(tmp_path / "module.py")] == [folder]


@pytest.mark.slow
def test_files_of_an_open_family_know_no_sibling():
    found = []
    for path, names in all_imports().items():
        if part(path) not in OPEN:
            continue
        family, own = path.relative_to(ROOT).parts[0], path.relative_to(ROOT).parts[1].removesuffix(".py")
        for name in names:
            below = name.split(".")[2:3] if name.startswith(f"icl_lab.{family}.") else []
            if below and below[0] not in {own, *BASES[family].split()}:
                found.append(f"{path.relative_to(ROOT)} may not import its sibling {name}")
    assert found == []


def test_each_library_enters_by_its_door():
    found = []
    for path, names in all_imports().items():
        used = {name.split(".")[0] for name in names}
        found += [
            f"{path.relative_to(ROOT)} may not import {library}"
            for library, doors in DOORS.items()
            if library in used and part(path) not in doors
        ]
        if "torch" in used and ((part(path) in WITHOUT_TORCH and path not in TORCH) or path == STATISTICS):
            found.append(f"{path.relative_to(ROOT)} may not import torch")
    assert found == []


def test_runs_draw_nothing_and_only_stores_know_the_archive():
    keepers = {"store.py", "archiving.py", "verify.py"}
    for path in (ROOT / "runs").glob("*.py"):
        used = {".".join(name.split(".")[1:3]) for name in all_imports()[path]}
        assert not any(name.split(".")[0] == "figures" for name in used) or path.name == "study_folder.py", path
        assert "runs.evidence" not in used or path.name in keepers, path


@pytest.mark.slow
def test_every_floor_is_real():
    assert {part(path) for path in modules()} == set(FLOOR)
    assert "pandas" in {name.split(".")[0] for path in modules() for name in imports(path)}


def test_the_pass_fits_on_one_screen():
    assert len((ROOT / "pipeline.py").read_text().splitlines()) <= 110


def test_no_two_classes_share_a_name():
    """But for ``Run``: ``icl_lab.Run`` shows the stored one of ``runs/run.py``."""
    found = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {"Run": ["api/run.py", "runs/run.py"]}
