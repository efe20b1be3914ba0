"""The pictures of boundary values."""

import math

import numpy as np
import pytest

from icl_lab.figures import bounds as pictures


def test_the_picture_of_the_curves_says_what_was_detected():
    t = np.linspace(-40, 40, 9)
    line = list(zip(t, t.clip(-5, 5), strict=True))
    panel = pictures.BoundPanel({"softmax": [line, line]}, {"softmax": [-7.0]}, {"softmax": [5.0]})
    drawn = pictures.curves({"f(x) = x": panel, "f(x) = 9x": panel}, title="t", trained=4.2, reach=40)
    axes = drawn.axes[0]
    assert [each.get_title() for each in drawn.axes] == ["f(x) = x", "f(x) = 9x"]
    (middle,) = [each for each in axes.lines if each.get_label() == "softmax"]
    assert middle.get_ydata() == pytest.approx(t.clip(-5, 5))
    assert [list(each.get_ydata()) for each in axes.lines if list(each.get_xdata()) == [0.955, 1.0]] == [[5, 5]]
    assert {text.get_text() for text in drawn.legends[0].get_texts()} >= {"truth", "softmax", "onset beyond training"}


def test_the_pictures_of_the_control_and_of_the_sweep():
    drawn = pictures.control([1, 10], {"inputs": {"softmax": [[8, 9], [math.nan, math.nan]]}}, title="t")
    low, high = drawn.axes[0].get_ylim()
    assert high / low >= 5
    drawn = pictures.sweeps(
        [1, 4, 10], {"ssa": ([[0.1, 9, 90]], [[0, 5, 60]])}, [2, 32, 200], title="t", judged=4, axis="sigma"
    )
    assert {each.get_label() for each in drawn.axes[0].lines} >= {"measured", "predicted from B", "answer 0"}
