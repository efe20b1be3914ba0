"""A comparison of two normalizers after ten steps, made once for the tests of commands that read it."""

import contextlib
import io
import shutil
import sys
from types import SimpleNamespace

import pytest

from icl_lab.cli.main import main

SETTINGS = "train.steps=10 train.batch=8 model.width=16 test.prompts=64 test.axes.length=5,12"
LINEAR = ["--task", "linear", "--preset", "smoke", "--set", f"{SETTINGS} test.axes.sigma_f=1,2,4,10"]


@pytest.fixture(scope="session")
def compared(tmp_path_factory, one_pixel):
    """The results folder, and what the command said."""
    root, out, err = tmp_path_factory.mktemp("compared") / "results", io.StringIO(), io.StringIO()
    with one_pixel(), pytest.MonkeyPatch.context() as patch:
        words = ["compare", *LINEAR, "--attn", "softmax", "--attn", "ssa", "--seeds", "2", "--results", str(root)]
        patch.setattr(sys, "argv", ["icl-lab", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    return SimpleNamespace(root=root, out=out.getvalue(), err=err.getvalue())


@pytest.fixture
def made(compared, tmp_path):
    """The folder of the comparison, in results that a test may change."""
    shutil.copytree(compared.root, tmp_path / "results")
    (page,) = (tmp_path / "results").glob("*/report.html")
    return page.parent
