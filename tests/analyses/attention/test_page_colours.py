"""Colours of the maps: scales, zeros, hidden cells, and prompts of many tokens."""

import numpy as np


def test_hidden_zero_and_signed_cells_look_different(visit, tmp_path, sharpen, look, write):
    sharpen()
    found = look("sparsemax", "softmax", text="5,-9,30,-70,40")
    tab = visit(write(found, tmp_path / "sparse.html"))
    pixels = np.array(
        tab.evaluate("Array.from(picture(0, 0, 0, order()).getContext('2d').getImageData(0, 0, 9, 9).data)")
    ).reshape(9, 9, 4)
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
