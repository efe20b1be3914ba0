"""The frame of analyses: options from fields, labels, checks before training, progress, claims, and single prompts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from icl_lab.analyses import frame, runner
from icl_lab.analyses.deviant import Deviant
from icl_lab.analyses.findings import StoredGrids, TrainedModel
from icl_lab.analyses.frame import Analysis, Metric, option
from icl_lab.base.errors import BadValue, Stopped, Undefined, UnknownName, UnknownOption
from icl_lab.base.grid import Grid
from icl_lab.comparison.statistics import resampled
from icl_lab.runs.store import by_rule


@dataclass(frozen=True, kw_only=True)
class Count(Analysis):
    """How many parameters has it?"""

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"count": (frame.SHIFTS, "times"), "none": ("times",)}
    title: ClassVar[str] = "parameters"

    times: int = option(1, "How often.", least=1)
    rates: tuple[float, ...] = option((), "Rates.", least=0)

    def check(self, spec):
        if spec.attn == "softmax" and self.times > 5:
            raise BadValue("softmax is counted at most five times.")

    def measure(self, trained):
        trained.tick(1, 2)
        rows = []
        for name in trained.subjects():
            value = 0.0 if name.startswith("reference:") else trained.model.parameter_count()
            here = {axis: value for axis, value in trained.cell.items() if axis != "length"}
            rows.append({"attn": name, **here, "times": self.times, "metric": "count", "value": value, "count": 1})
        return {"count": rows}

    def table(self, found):
        return [f"{rule}: {found['count'].where(attn=rule).frame['value'].mean():g}" for rule in found.rules]

    def figures(self, found, title):
        from matplotlib.figure import Figure

        return {"count": Figure()}

    def finding(self, found):
        return f"{len(found.rules)} normalizers were counted."


@dataclass(frozen=True, kw_only=True)
class Declared(Analysis):
    """How tall is it?"""

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"height": ("place",)}
    title: ClassVar[str] = "height"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "metres": Metric("height", last=("place",)),
        "feet": Metric("height", ("place",), constants=True),
    }

    def measure(self, trained):
        return {}

    table = figures = measure


@pytest.fixture
def heights(tiny):
    """Heights of two normalizers in two seeds at the places 1 and 2."""
    rows = [
        {"task": "linear", "attn": rule, "seed": seed, "place": place, "metric": metric, "value": size, "stderr": 0.5}
        for metric in ("metres", "feet")
        for rule, base in (("softmax", 1.0), ("ssa", 4.0))
        for seed in (0, 1)
        for place, size in ((1, base + seed), (2, 2 * base + seed))
    ]
    return frame.Findings({"height": Grid.of(rows, ["place"])}, {"softmax": tiny()})


def test_a_claim_reads_the_cells_that_are_declared(heights):
    def value(cells, metric="", of="ssa"):
        return Declared().value(heights, of, cells, metric, 1)

    assert value({}) == 9.0  # the first metric, at the last place
    assert value({"place": [1]}) == 5.0
    assert value({"place": [1, 2]}, "feet") == 7.0
    with pytest.raises(KeyError, match=r"a claim about 'feet' names its place: cells = \{ place = \[2\] \}"):
        value({}, "feet")
    with pytest.raises(KeyError, match="Declared has no metric 'inches'; there are metres, feet"):
        value({}, "inches")
    with pytest.raises(KeyError, match="no cell has place=3"):
        value({"place": [2, 3]})  # the mean of some of the places would be another number
    with pytest.raises(KeyError, match="no cell has attn=reference:4"):
        value({}, of="reference:4")


def test_a_number_is_the_subject_of_a_claim_where_declared(heights):
    asked = (heights, "reference:4", {}, "feet", 0)
    assert Declared().value(*asked) == 4.0
    assert Declared().prompts_error(*asked) == 0.0
    assert set(Declared().on_resamples(*asked)) == {4.0}
    assert Declared().prompts_error(heights, "ssa", {}, "", 0) == 0.5


def test_undefined_cells_are_left_out_or_nothing_is_left(heights, monkeypatch):
    monkeypatch.setattr(Declared, "undefined", "nobody was measured")
    rows = heights["height"].rows()
    for row in rows:
        row["value"] = float("nan") if (row["attn"], row["place"]) == ("ssa", 2) else row["value"]
    found = frame.StoredGrids({"height": Grid.of(rows, ["place"])})
    assert Declared().value(found, "ssa", {"place": [1, 2]}, "", 0) == 4.0
    with pytest.raises(Undefined, match="nobody was measured"):
        Declared().value(found, "ssa", {}, "", 0)


def groups_of(tiny, lab, *rules, seeds=1):
    return by_rule([lab.store.run(tiny(attn=rule), seed) for rule in rules for seed in range(seeds)])


@pytest.mark.slow
def test_rows_carry_labels_references_come_once_and_parts_tick(tiny, lab):
    ticks = []
    object.__setattr__(lab, "tick", lambda stage, done, total, note: ticks.append((stage, done, total, note)))
    found = runner.ask(Count(), groups_of(tiny, lab, "softmax", "ssa", seeds=2), lab)
    own = [tick[1:] for tick in ticks if tick[0] == "Count"]  # of four models, in two parts each
    assert own == [(50 * (at + 1), 400, "softmax" if at < 4 else "ssa") for at in range(8)]
    grid = found["count"]
    assert list(found.grids) == ["count"]
    assert grid.axes == ["sigma_x", "sigma_f", "times"]
    assert found.rules == ["softmax", "ssa"]
    assert found.seeds == [0, 1]
    references = [name for name in grid.frame["attn"] if name.startswith("reference:")]
    assert len(references) == len(set(references)) > 0
    assert set(grid.frame["spec"]) == {tiny().hash, tiny(attn="ssa").hash}


def test_a_wrong_question_is_refused_before_training(tiny, lab):
    groups = groups_of(tiny, lab, "ssa", "softmax")
    with pytest.raises(BadValue, match="at most five times"):
        runner.ask(Count(times=6), groups, lab)
    assert not any(run.trained for runs in groups.values() for run in runs)


def test_values_below_the_least_or_not_finite_are_refused():
    for name, value, said in (
        ("times", 0, "at least 1, got 0"), ("rates", (1.0, -1.0), "at least 0, got -1"),
        ("rates", (math.nan,), "finite, got nan"),
    ):  # fmt: skip
        with pytest.raises(BadValue, match=f"{name} must be {said}"):
            Count(**{name: value})


@pytest.mark.slow
def test_a_stop_between_two_models_writes_nothing(tiny, lab):
    groups = groups_of(tiny, lab, "softmax", "ssa")
    for runs in groups.values():
        runner.load_or_train(runs[0], lab)
    object.__setattr__(lab, "stopping", lambda: True)
    with pytest.raises(Stopped, match="nothing was written"):
        runner.ask(Count(), groups, lab)


def test_two_specifications_of_one_rule_get_labels_of_their_own(tiny, lab):
    plain, wide = lab.store.run(tiny(), 0), lab.store.run(tiny("linear", "softmax", "model.width=32"), 0)
    assert list(runner.labels([plain])) == ["softmax"]
    assert list(runner.labels([plain, wide])) == [f"softmax smoke-{plain.spec.hash}", f"softmax smoke-{wide.spec.hash}"]


def test_options_of_a_file_are_checked():
    made = frame.build("deviant", {"factors": [1, 10], "prompts": 8})
    assert made == Deviant(factors=(1.0, 10.0), prompts=8)
    with pytest.raises(UnknownOption, match="Did you mean 'factors'"):
        frame.build("deviant", {"factor": [1]})
    with pytest.raises(BadValue, match="prompts"):
        frame.build("deviant", {"prompts": "many"})
    with pytest.raises(UnknownName, match="Did you mean 'deviant'"):
        frame.build("deviants", {})


def test_claims_of_an_analysis_without_values_are_refused():
    with pytest.raises(BadValue, match="claims cannot be judged by the analysis count"):
        Count().value(None, "softmax", {}, "", 0)


WHO = {"task": "linear", "preset": "nano", "spec": "0", "attn": "softmax", "seed": 0}


def cells(*factors: float) -> Grid:
    place = {"metric": "mse", "value": 0.0, "stderr": None, "count": 2}
    return Grid.of([{**place, "factor": factor} for factor in factors], ["factor"], **WHO)


@pytest.fixture
def kept() -> StoredGrids:
    """Two prompts err 1 and 3 at factor 1, and 2 and 8 at factor 10."""
    trained = SimpleNamespace(run=SimpleNamespace(seed=0))
    errors = {1.0: torch.tensor([1.0, 3.0]), 10.0: torch.tensor([2.0, 8.0])}
    rows = [row for x, e in errors.items() for row in TrainedModel.of_prompts(trained, {"factor": x}, {"mse": e})]
    return StoredGrids({"prompts": Grid.of(rows, ["factor", "prompt"], **WHO)})


def test_a_mean_over_cells_is_drawn_with_the_same_prompts_in_all(kept):
    """Both prompts once: (2 + 5) / 2; the first twice: (1 + 2) / 2; the second twice: (3 + 8) / 2."""
    drawn = kept.on_resamples(cells(1.0, 10.0))
    assert drawn[0] == 3.5
    assert set(drawn) == {1.5, 3.5, 5.5}
    assert kept.on_resamples(cells(10.0), logarithm=True)[0] == pytest.approx(math.log(5))
    # As whoever draws prompts for claims does: what is told of two sides is of the same resamples.
    of_one = np.array([[2.0, 8.0]])
    assert kept.on_resamples(cells(10.0)).tolist() == resampled(of_one, seed=0)[:, 0].tolist()


def test_a_cell_counts_once_however_many_rows_it_has(kept):
    assert kept.on_resamples(cells(1.0, 1.0, 10.0))[0] == 3.5


def test_where_one_of_the_cells_is_not_kept_nothing_is_told(kept):
    assert kept.on_resamples(cells(1.0, 100.0)) is None
