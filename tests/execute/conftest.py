"""What tests of grids and of learning rates share: four steps, two cells, no progress; and a terminal."""

import io

import pytest

import icl_lab as icl

SMALL = {"train.steps": 4, "test.prompts": 64, "test.axes.length": [5], "test.axes.sigma_x": [1]}
SMALL |= {"test.axes.sigma_f": [1, 4]}
SET = ["train.steps=4", "test.prompts=64", "test.axes.length=5", "test.axes.sigma_x=1", "test.axes.sigma_f=1,4"]


@pytest.fixture
def where(tmp_path):
    return icl.Where(results=tmp_path, progress=False, evidence=False, jobs=1)


class Screen(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self):
        return True

    @property
    def drawn(self):
        return self.getvalue().count("\r")
