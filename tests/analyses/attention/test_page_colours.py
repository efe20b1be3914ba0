"""Colours of the maps: scales, zeros, hidden cells, and prompts of many tokens."""

import numpy as np
import pytest

from tests.analyses.attention.shown import words_of_map

pytestmark = pytest.mark.slow


def test_hidden_zero_and_signed_cells_look_different(visit, tmp_path, sharpen, look, write):
    sharpen()
    found = look("sparsemax", "softmax", text="5,-9,30,-70,40")
    tab = visit(write(found, tmp_path / "sparse.html"))
    pixels = colours(tab, 0, 9)
    weights = found.frames[0].maps[0].weights[0, 0].numpy()
    hidden = np.triu(np.ones((9, 9), dtype=bool), 1)
    assert (pixels[..., 3] == np.where(hidden, 0, 255)).all()  # what is hidden is left to the hatching
    zero = (weights == 0) & ~hidden
    assert zero.any()
    grey = pixels[zero][0, :3]
    assert "#" + "".join(f"{part:02x}" for part in grey) == tab.evaluate("css('--zero')")
    assert (pixels[zero][:, :3] == grey).all()
    assert not (pixels[(weights > 0) & ~hidden][:, :3] == grey).all(-1).any()
    support = tab.locator("#row tbody tr").first.inner_text().split("\t")[4]
    assert support == f"{(weights[8] > 0).sum()} of 9"
    red, blue = (tab.evaluate(f"Array.from(colour({value}, 2, 1))") for value in (1, -1))  # of the difference
    assert red[0] > blue[0]
    assert blue[2] > red[2]


def colours(tab, run, rows):
    """The colours of the last rows of a map, (rows keys 4)."""
    taken = tab.evaluate(
        "([run, rows]) => (image => [image.width, ...image.getContext('2d').getImageData("
        "0, image.height - rows, image.width, rows).data])(picture(run, 0, 0, order()))",
        [run, rows],
    )
    return np.array(taken[1:]).reshape(rows, taken[0], 4)


@pytest.mark.exhaustive
def test_long_prompts_are_coloured_by_row(visit, long, pair):
    found, path = long
    tab = visit(path)
    assert tab.locator("#scale option:checked").inner_text() == "automatic: per row"
    assert tab.is_checked("#log")
    ramp = np.array(tab.evaluate("Array.from(ramps.plain)")).reshape(256, 3)
    weights = found.frames[0].maps[0].weights[0, 0].numpy()
    pixels = colours(tab, 0, 50)
    for row, own in zip(pixels, weights[-50:], strict=True):
        assert (row[own.argmax(), :3] == ramp[255]).all()
    share = weights[-1] / weights[-1].max()
    true = ramp[np.rint(255 * np.clip(1 + np.log10(share) / 4, 0, 1)).astype(int)]
    assert np.abs(pixels[-1, :, :3] - true).max() <= 4  # a level is a matter of rounding
    short = visit(pair[1])
    assert short.locator("#scale option:checked").inner_text() == "automatic: one for all"
    assert not short.is_checked("#log")


def test_differences_per_row_are_shares_of_the_greatest_weight(visit, long):
    found, path = long
    tab = visit(path)
    first, second = (each.weights[0, 0, -1].numpy() for each in found.frames[0].maps)
    signed = np.array(tab.evaluate("Array.from(ramps.signed)")).reshape(256, 3)
    share = (second - first) / max(first.max(), second.max())
    true = signed[np.rint(255 * (0.5 + 0.5 * share)).astype(int)]
    assert np.abs(colours(tab, 2, 1)[0, :, :3] - true).max() <= 4
    assert tab.evaluate(words_of_map(2))[-1] == "difference of attention weight ÷ greatest of its row"


@pytest.mark.exhaustive
def test_chosen_scales_are_kept_whatever_the_length(visit, long, state):
    tab = visit(long[1])
    tab.select_option("#scale", "all")
    tab.uncheck("#log")
    assert (state(tab)["scale"], state(tab)["log"]) == ("all", "no")
    again = visit(long[1], tab.evaluate("location.hash"))
    assert again.input_value("#scale") == "all"
    assert not again.is_checked("#log")
    assert again.evaluate("maps[0].end") == pytest.approx(
        max(each.weights.max().item() for each in long[0].frames[0].maps), rel=1e-6
    )
