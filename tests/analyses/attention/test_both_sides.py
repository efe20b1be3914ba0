"""Models that see both sides of a token (``model.mask=full``): page, files and figures show every key; images."""

import base64
import csv
import io

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.attention import AttentionMaps, page, report
from icl_lab.base.errors import BadValue
from icl_lab.figures.attention import over_image
from icl_lab.pipeline import load_or_train
from tests.analyses.attention.shown import run_of

FULL = ("model.mask=full",)
ASKED = {"text": "random:seed=1", "task": "digits:patch=4", "settings": FULL}  # five tokens


@pytest.fixture(scope="module")
def found(look):
    """Softmax and SimA on an image of four patches."""
    return look("softmax", "sima", means=2, **ASKED)


@pytest.mark.slow
def test_the_page_holds_every_cell_of_a_full_map(found, laboratory):
    data = page.data(found)
    assert data["full"]
    held = data["frames"][0]["runs"][0]["weights"]
    weights = np.frombuffer(base64.b64decode(held["bytes"]), "<f4").reshape(2, 2, 5, 5)
    np.testing.assert_array_equal(weights, found.frames[0].maps[0].weights.numpy())
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    model = load_or_train(run_of(found, laboratory), laboratory)
    own = model.trace(found.asked.prompt.tokens)["layers.1.weights"][0]
    np.testing.assert_allclose(weights[1], own, atol=1e-6)
    assert [frame.axis for frame in found.frames[1:]] == ["noise"] * 4 + ["contrast"] * 2 + ["translation"] * 2


def test_a_causal_page_says_nothing_of_it(look):
    assert "full" not in page.data(look("softmax"))


def test_files_hold_keys_on_both_sides(found):
    rows = list(csv.DictReader(io.StringIO(report.files(found)["weights.csv"])))
    assert len(rows) == 2 * 4 * 25
    later = next(row for row in rows if (row["attn"], row["query"], row["key"]) == ("sima", "0", "4"))
    assert float(later["weight"]) == pytest.approx(found.frames[0].maps[1].weights[0, 0, 0, 4].item(), rel=1e-6)


def test_no_pattern_of_earlier_tokens_is_told(found):
    assert page.data(found)["patterns"]["shares"] == [[], []]


def test_a_page_cannot_compute_a_full_model(look):
    seen = look("softmax", live=500_000, **ASKED)
    assert seen.live is None
    assert "cannot compute the model itself: the model sees both sides of a token (model.mask=full)." in seen.notes[-1]


def test_two_masks_are_not_set_side_by_side(runs_of, lab):
    runs = [*runs_of("softmax", task="digits", settings=("test.axes.length=16",)),
            *runs_of("sima", task="digits", settings=("test.axes.length=16", *FULL))]  # fmt: skip
    with pytest.raises(BadValue, match=r"need the same mask, got model\.mask=causal and full"):
        runner.ask(AttentionMaps(prompt="random"), runner.labels(runs), lab)


def test_the_figure_hatches_nothing(found):
    panels = [axes for axes in report.figure(found, "a title").axes if axes.images]
    shown = panels[4].images[0].get_array()
    np.testing.assert_allclose(np.ma.filled(shown, np.nan), found.frames[0].maps[1].weights[0, 0].numpy())


@pytest.mark.slow
def test_the_class_tokens_weights_lie_over_the_image(found):
    figure = report.over_image(found, "a title")
    assert figure.get_suptitle().startswith("a title of softmax, sima, from class₁\nsoftmax answers")
    panels = [axes for axes in figure.axes if axes.images]
    assert [len(axes.images) for axes in panels] == [1, 2, 2] * 4
    assert [panels[at].get_title() for at in (0, 1)] == ["the image", "softmax, layer 0, head 0"]
    image, weights = panels[8].images
    assert panels[8].get_title().startswith("sima, layer 0, head")
    patches = found.frames[0].maps[1].weights[0, 1, 4, :4].reshape(2, 2)
    np.testing.assert_allclose(weights.get_array(), patches.numpy())
    assert image.get_extent() == weights.get_extent() == [0, 2, 2, 0]
    task = tasks.build("digits:patch=4")
    pixels = task.picture(found.asked.prompt)[..., 0]
    scaled = (pixels - pixels.min()) / (pixels.max() - pixels.min())
    np.testing.assert_allclose(image.get_array(), scaled.unsqueeze(2).expand(-1, -1, 3).numpy(), atol=1e-6)


def test_images_in_colours_are_shown_in_them_and_blank_ones_are():
    weights = {"softmax": np.full((1, 1, 2, 2), 0.2)}
    colours = np.random.default_rng(0).random((4, 4, 3))
    colours[0, 0], colours[0, 1] = 0, 1
    shown = over_image(colours, weights, [0], [0], title="x").axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, colours)
    blank = over_image(np.ones((4, 4, 2)), weights, [0], [0], title="x").axes[0].images[0].get_array()
    assert (blank == 0).all()


@pytest.mark.slow
def test_the_analysis_draws_images_of_image_tasks_alone(found, see):
    assert list(AttentionMaps(prompt="random").figures(found, "t")) == ["attention", "image"]
    assert list(AttentionMaps(prompt="1,-2").figures(see("softmax", text="1,-2"), "t")) == ["attention"]


@pytest.mark.slow
def test_the_page_shows_points_at_and_exports_later_keys(found, visit, write, point, state, download, tmp_path):
    tab = visit(write(found, tmp_path / "full.html"))
    maps = [each.weights for each in found.frames[0].maps]
    for layer, head in ((0, 0), (1, 1)):
        shown = torch.tensor([tab.evaluate(f"attention({run}, {layer}, {head})") for run in (0, 1)])
        torch.testing.assert_close(shown, torch.stack([each[layer, head] for each in maps]))
    point(tab, 0, 1, 3, "click")
    assert (state(tab)["query"], state(tab)["key"]) == ("1", "3")
    assert "hidden" not in tab.inner_text("#readout")
    tab.keyboard.press("Shift+ArrowRight")
    assert state(tab)["key"] == "4"
    tab = visit(tmp_path / "full.html", "#query=0&key=4&rows=1&show=times")
    assert state(tab)["key"] == "4"
    assert tab.evaluate("shown(frame(), 0, 0, 0, 0, 4)") == pytest.approx(5 * maps[0][0, 0, 0, 4].item(), rel=1e-6)
    assert tab.evaluate("points().length") == 2 * 5 * 4  # the class token has no number
    assert tab.evaluate("sums(0, 0).support") == "5 of 5"
    assert float(tab.evaluate("sums(0, 0).sum")) == pytest.approx(1, abs=1e-3)
    assert len(download(tab, "csv")[1].splitlines()) == 1 + 2 * 25
    tab.select_option("#axis", "noise")
    own = found.frames[1].maps[1].weights[1, 1, 4, 4].item()
    assert tab.evaluate("raw(frame(), 1, 'weights', 1, 1, 4, 4)") == pytest.approx(own, abs=1e-3)
