"""What tests of this folder share: four steps, two cells, no progress; a terminal, and a reporter that keeps notes."""

import io

import pytest

import icl_lab as icl
from icl_lab.execute.reporter import Silent

SMALL = {"train.steps": 4, "test.prompts": 64, "test.axes.length": [5], "test.axes.sigma_x": [1]}
SMALL |= {"test.axes.sigma_f": [1, 4]}
SET = ["train.steps=4", "test.prompts=64", "test.axes.length=5", "test.axes.sigma_x=1", "test.axes.sigma_f=1,4"]


@pytest.fixture
def where(tmp_path):
    return icl.Where(results=tmp_path, progress=False, evidence=False, jobs=1)


class Notes(Silent):
    """Keeps the lines that are said, those of a dry run, and which runs were finished, and whether before."""

    def __init__(self):
        super().__init__()
        self.said, self.lines, self.runs = [], [], []

    def say(self, text):
        self.said.append(text)

    def out(self, text):
        self.lines.append(text)

    def finished(self, run, already):
        self.runs.append((run.seed, already))


class Screen(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self):
        return True

    @property
    def drawn(self):
        return self.getvalue().count("\r")
