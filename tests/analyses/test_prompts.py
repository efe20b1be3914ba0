"""What single prompts add to a number, by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icl_lab.analyses.findings import StoredGrids, TrainedModel
from icl_lab.base.grid import Grid
from icl_lab.comparison.statistics import resampled

WHO = {"task": "linear", "preset": "nano", "spec": "0", "attn": "softmax", "seed": 0}


def cells(*factors: float) -> Grid:
    place = {**WHO, "metric": "mse", "value": 0.0, "stderr": None, "count": 2}
    return Grid.of([{**place, "factor": factor} for factor in factors], ["factor"])


@pytest.fixture
def kept() -> StoredGrids:
    """Two prompts err 1 and 3 at factor 1, and 2 and 8 at factor 10."""
    trained = SimpleNamespace(run=SimpleNamespace(seed=0))
    rows = [
        {**WHO, **row}
        for factor, errors in ((1.0, [1.0, 3.0]), (10.0, [2.0, 8.0]))
        for row in TrainedModel.of_prompts(trained, {"factor": factor}, {"mse": torch.tensor(errors)})
    ]
    return StoredGrids({"prompts": Grid.of(rows, ["factor", "prompt"])})


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
