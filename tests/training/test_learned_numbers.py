"""What normalizers learn is kept in the history of a run."""

import pytest

from icl_lab.pipeline import sweep


@pytest.mark.slow
def test_learned_numbers_stand_in_the_history(tiny, lab):
    spec = tiny("linear", "softmax", "train.switch_step=52", "train.switch_to=ssmax:bias=yes")
    sweep(spec, 0, lab)
    before, after = lab.store.run(spec, 0).history()
    assert set(before) == {"step", "loss", "length", "rate", "bound", "score.0", "entropy.0"}
    assert set(after) - set(before) == {"s 0.0", "s 0.1", "b 0.0", "b 0.1"}
    assert after["s 0.0"] != 1
    assert abs(after["s 0.0"] - 1) < 0.5
