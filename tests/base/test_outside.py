"""Parts from outside: files, packages and entry points are imported, named and refused in one clear line each."""

import sys

import pytest
import torch

from icl_lab import normalizers, tasks
from icl_lab.base import outside
from icl_lab.base.errors import BadValue, NameTaken, UnknownName

pytestmark = pytest.mark.usefixtures("own_parts")

RULE = '''
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import WarpedScore


@registry.add("{name}")
class Rule(WarpedScore):
    """A rule."""

    def __init__(self, site, *, c: float = {c}):
        super().__init__()
        self.c = c

    def warp(self, z, n):
        return self.c * z
'''


def write(path, name="mine", c=2.0, more=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RULE.format(name=name, c=c) + more)
    return path


def package(folder, name="mypackage", part="mine", **files):
    write(folder / name / "rules.py", part)
    (folder / name / "__init__.py").write_text("from mypackage import rules\n")
    return folder / name


def distribution(folder, name, version, points):
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (place / "entry_points.txt").write_text("[icl_lab.normalizers]\n" + "\n".join(points) + "\n")


def build(choice):
    return normalizers.build(choice, heads=2, head_dim=4, train_tokens=5)


def said(given):
    with pytest.raises(BadValue) as caught:
        outside.load(given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_brings_a_rule_that_is_chosen_like_any_other(tmp_path, monkeypatch):
    write(tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    outside.load("./mine.py")
    monkeypatch.chdir("/")
    outside.load(str(tmp_path / "mine.py"))  # the same file: nothing to do
    assert build("mine:c=3").c == 3
    assert normalizers.canonical("mine:c=3.0+reweight: p=2") == "mine:c=3+reweight:p=2"
    assert normalizers.registry.source("mine").words == "--import ./mine.py"
    assert normalizers.registry.source("softmax") is None


def test_a_normalizer_needs_no_constructor(tmp_path):
    text = write(tmp_path / "mine.py").read_text()
    start, end = text.index("    def __init__"), text.index("    def warp")
    (tmp_path / "bare.py").write_text((text[:start] + text[end:]).replace('"mine"', '"bare"').replace("self.c * ", ""))
    outside.load(str(tmp_path / "bare.py"))
    q, k = torch.randn(2, 1, 2, 5, 4)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.equal(build("bare").weights(q, k, visible), build("softmax").weights(q, k, visible))


def test_a_wrapper_and_a_task_come_from_outside_too(tmp_path):
    (tmp_path / "more.py").write_text(
        """
from icl_lab import tasks
from icl_lab.normalizers import wrappers
from icl_lab.normalizers.reweight import Reweight
from icl_lab.tasks.linear import Linear

wrappers.add("again")(type("Again", (Reweight,), {"__module__": __name__}))
tasks.registry.add("line")(type("Line", (Linear,), {"__module__": __name__}))
"""
    )
    source = outside.load(str(tmp_path / "more.py"))
    assert build("softmax+again:p=2").p == 2
    assert tasks.build("line").width == 1
    assert normalizers.wrappers.brought(source) == ["again"]
    assert tasks.registry.brought(source) == ["line"]
    assert normalizers.registry.brought(source) == []


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder, c in (("a", 2.0), ("b", 3.0)):
        source = outside.load(str(write(tmp_path / folder / "mine.py", f"from-{folder}", c)))
        assert normalizers.registry.brought(source) == [f"from-{folder}"]
        assert build(f"from-{folder}").c == c
    assert len(set(map(type, map(build, ("from-a", "from-b"))))) == 2
    assert build("from-a").__module__ != build("from-b").__module__


def test_an_edited_file_is_never_taken_from_a_cache(tmp_path, monkeypatch):
    path = write(tmp_path / "mine.py", c=2.0)
    outside.load(str(path))
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_package_is_imported_by_name_or_folder(tmp_path, monkeypatch, by):
    folder = package(tmp_path)
    if by == "name":
        monkeypatch.syspath_prepend(tmp_path)
    source = outside.load("mypackage" if by == "name" else str(folder))
    assert normalizers.registry.brought(source) == ["mine"]
    assert list(source.hashes) == ["mypackage.rules"]


def test_a_folder_named_like_an_installed_package_is_refused(tmp_path):
    write(tmp_path / "torch" / "__init__.py")
    assert "the name 'torch' belongs to" in said(str(tmp_path / "torch"))


def test_a_package_that_was_imported_before_is_found(tmp_path, monkeypatch):
    package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    outside.load("mypackage.rules")
    assert normalizers.registry.brought(outside.load("mypackage")) == ["mine"]


def test_a_name_that_is_taken_names_both_places(tmp_path):
    path = write(tmp_path / "mine.py", "softmax")
    line = said(str(path))
    assert "'softmax' is registered twice: in icl_lab.normalizers.softmax and in" in line
    assert str(path) in line
    outside.load(str(write(tmp_path / "a.py")))
    line = said(str(write(tmp_path / "b.py")))
    assert "'mine' is registered twice" in line
    assert f"{tmp_path / 'a.py'} and in {tmp_path / 'b.py'}" in line


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = = 1\n", "line 1: SyntaxError: invalid syntax"),
        ("x = 1\nimport nothing_of_the_kind\n", "line 2: ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("from . import other\n", "line 1: ImportError: attempted relative import"),
        ("def f():\n    raise ValueError('a\\nb')\n\n\nf()\n", "line 2: ValueError: a"),
        ("import torch\ntorch.zeros(2) + torch.zeros(3)\n", "line 2: RuntimeError: The size of tensor"),
        ("import sys\nsys.exit('no')\n", "line 2: it calls sys.exit"),
        ("x = '\\0'\n\x00", "null bytes"),
        ("from icl_lab.normalizers import registry\nregistry.add('two words')(int)\n", "line 2: @registry.add takes"),
    ],
)
def test_a_file_that_fails_says_where_in_one_line(tmp_path, code, says):
    path = tmp_path / "mine.py"
    path.write_text(code)
    line = said(str(path))
    assert line.startswith(f"--import {path}")
    assert "mine.py, line" in line or "null" in says
    assert says in line


def test_a_file_that_fails_leaves_no_part_behind(tmp_path):
    path = write(tmp_path / "mine.py", more="raise RuntimeError('late')\n")
    assert "line 16: RuntimeError: late" in said(str(path))
    with pytest.raises(UnknownName):
        build("mine")
    write(path)
    outside.load(str(path))
    assert build("mine").c == 2


@pytest.mark.parametrize("code", ["", "from icl_lab.normalizers.ssa import SSA\n", "import icl_lab.tasks.linear\n"])
def test_a_file_that_registers_nothing_says_so(tmp_path, code):
    path = tmp_path / "mine.py"
    path.write_text(code)
    assert "registers nothing" in said(str(path))


def test_what_is_not_there_is_answered_with_the_nearest(tmp_path, monkeypatch):
    write(tmp_path / "square.py")
    package(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "there is no such file. Nearest there: square.py" in said("./squar.py")
    assert "There is no folder" in said("./nowhere/square.py")
    assert "no __init__.py" in said("./empty")
    assert "ends in .py" in said("./notes.txt")
    assert "no module called 'nosuch'" in said("nosuch")
    assert "--import ./mypackage" in said("mypackage")
    assert "--import ./square.py" in said("square")
    assert "neither" in said("a b")


def test_a_home_that_is_not_there_is_one_line():
    with pytest.raises(BadValue, match=r"~nobody-of-this-name/mine\.py: there is no such home folder"):
        outside.load("~nobody-of-this-name/mine.py")


def test_built_in_parts_stay_built_in_when_imported(tmp_path):
    path = write(tmp_path / "mine.py", more="from icl_lab.normalizers.ssa import SSA\n")
    assert normalizers.registry.brought(outside.load(str(path))) == ["mine"]


def test_entry_points_of_installed_packages_bring_parts(tmp_path, monkeypatch):
    package(tmp_path)
    distribution(tmp_path, "my-rules", "1.2", ["mine = mypackage.rules:Rule"])
    monkeypatch.syspath_prepend(tmp_path)
    assert build("mine").c == 2
    record = normalizers.registry.record("mine")
    assert (record["distribution"], record["entry_point"]) == ("my-rules 1.2", "mine = mypackage.rules:Rule")
    assert len(record["sha256"]) == 64


def test_a_broken_entry_point_breaks_nothing_else(tmp_path, monkeypatch):
    package(tmp_path)
    (tmp_path / "mypackage_broken.py").write_text("import nothing_of_the_kind\n")
    points = ["a-bad = mypackage_broken", "b-lost = mypackage.rules:Other", "mine = mypackage.rules"]
    distribution(tmp_path, "my-rules", "1.2", points)
    monkeypatch.syspath_prepend(tmp_path)
    assert build("mine").c == build("mine:c=2").c
    assert build("softmax")
    first, second = normalizers.registry.broken()
    assert first.startswith("The distribution my-rules 1.2 (entry point a-bad = mypackage_broken): ")
    assert "mypackage_broken.py, line 1: ModuleNotFoundError" in first
    assert "AttributeError" in second
    with pytest.raises(UnknownName, match=r"No normalizer is called 'a-bad'.* distribution my-rules 1\.2 ") as caught:
        build("a-bad")
    assert "\n" not in str(caught.value)


def test_a_name_of_two_installed_packages_is_refused(tmp_path, monkeypatch):
    for name in ("mypackage_a", "mypackage_b"):
        write(tmp_path / f"{name}.py", "mine")
        distribution(tmp_path, name, "1.0", [f"mine = {name}"])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NameTaken, match=r"mypackage_a\.py and in .*mypackage_b\.py"):
        build("mine")
    assert build("softmax")


def test_an_installed_package_cannot_replace_a_built_in_rule(tmp_path, monkeypatch):
    write(tmp_path / "mypackage_a.py", "softmax")
    distribution(tmp_path, "my-rules", "1.2", ["softmax = mypackage_a"])
    monkeypatch.syspath_prepend(tmp_path)
    assert type(build("softmax")).__module__ == "icl_lab.normalizers.softmax"
    assert "registered twice" in normalizers.registry.broken()[0]


def test_a_worker_refuses_a_file_that_has_changed(tmp_path):
    path = write(tmp_path / "mine.py")
    outside.load(str(path))
    orders = outside.imported()
    outside.import_again(orders)
    (order,) = orders
    with pytest.raises(BadValue, match="has changed since the command began"):
        outside.import_again([{**order, "hashes": {"mine": "another"}}])


def test_a_class_of_another_kind_is_refused_in_one_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from icl_lab import normalizers, tasks\n\n\n"
        "@normalizers.registry.add('mine')\nclass Rule:\n    def __init__(self, site):\n        pass\n\n\n"
        "@tasks.registry.add('mine')\nclass Task:\n    pass\n"
    )
    outside.load(str(path))
    with pytest.raises(BadValue, match="must be a Normalizer"):
        build("mine")
    with pytest.raises(BadValue, match="must be a Task"):
        tasks.build("mine")


def test_tables_of_the_readme_hold_built_in_parts_only(tmp_path):
    outside.load(str(write(tmp_path / "mine.py")))
    assert "mine" in {entry.name for entry in normalizers.registry.entries()}
    assert "mine" not in {entry.name for entry in normalizers.registry.entries(outside=False)}


def test_a_dotted_module_is_no_path():
    assert "no module called 'x'" in said("x.y")
    assert "x" not in sys.modules
