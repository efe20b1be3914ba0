"""A laboratory of a second: five steps, a grid of four cells, a folder of its own."""

import shutil

import pytest

import icl_lab as icl

SMALL = [
    *("train.steps=5", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"),
    *("test.axes.sigma_x=1", "test.axes.sigma_f=1,2", "test.axes.length=5,12"),
]


def quiet(place=None):
    """A results folder, and no progress."""
    return icl.Where(results=place, progress=False)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "results"


@pytest.fixture(scope="session")
def stock(tmp_path_factory, one_pixel):
    """Two seeds of two normalizers and their comparison, trained once."""
    place = tmp_path_factory.mktemp("stock") / "results"
    with one_pixel():
        icl.compare("linear", ["softmax", "ssa"], "smoke", SMALL, seeds=2, where=quiet(place))
    return place


@pytest.fixture
def stocked(stock, place):
    """The test's own folder, with these runs in it: for tests of what is made of runs."""
    shutil.copytree(stock, place)


@pytest.fixture
def swept(place):
    """Sweeps a normalizer in the test's own folder."""

    def sweep(attn="ssa", task="linear", settings=SMALL, seeds=None, swap="", **where):
        there = icl.Where(**{"results": place, "progress": False, **where})
        return icl.sweep(task, attn, "smoke", settings, seeds=seeds, swap=swap, where=there)

    return sweep


@pytest.fixture
def typed(run, tmp_path):
    """Types a command, with its results in another folder; returns (code, stdout, stderr)."""

    def call(*words):
        return run(*words, results=tmp_path / "typed")

    call.ok = lambda *words: run.ok(*words, results=tmp_path / "typed")
    return call


def options(settings=SMALL):
    return [word for setting in settings for word in ("--set", setting)]


def contents(folder, *, but=()):
    """Every file below a folder with its bytes, those with times left out."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name not in but and ".lock" not in name}
