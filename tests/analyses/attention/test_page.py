"""The page in a real browser: that it fits, and that its numbers are the model's."""

import numpy as np
import pytest
import torch

from tests.analyses.attention.shown import HIDDEN_CORNER, words_of_map
from tests.cases import few

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1100, "light")])
def test_page_opens_from_disk_and_fits(visit, pair, width, scheme):
    tab = visit(pair[1], color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.locator("#grid button").count() == 2 * 2 * 2
    assert tab.locator("#maps canvas").count() == 3  # both runs and the difference
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200) == (scheme == "dark")
    # The hidden corner of a map is hatched on the paper of its scheme.
    assert (sum(tab.evaluate(HIDDEN_CORNER)) < 300) == (scheme == "dark")


def test_figure_2_is_labelled_as_in_the_paper(visit, pair):
    tab = visit(pair[1])
    assert "The prompt reads 1 True −2 False 3 False 70." in tab.inner_text("body")
    tab.locator("#table summary").click()
    labels = ["x₁ = 1", "y₁ = True", "x₂ = −2", "y₂ = False", "x₃ = 3", "y₃ = False", "x₄ = 70"]
    table = tab.locator("#tables table").first
    assert table.locator("th").all_inner_texts()[:8] == ["query", *labels]
    assert [row.split("\t")[0] for row in table.locator("tbody tr").all_inner_texts()] == labels
    # The same words stand on the axes of the drawn maps.
    drawn = tab.evaluate(words_of_map(0))
    assert drawn[0] == "softmax, layer 0, head 0"
    assert sorted(drawn[1:15]) == sorted(2 * labels)
    truth = tab.locator("#answers tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in truth] == ["True", "False", "False", "False"]


def test_slider_goes_through_the_means(visit, pair, point, state):
    found, path = pair
    tab = visit(path)
    assert tab.locator("#sliding").is_hidden()
    tab.select_option("#axis", "length")
    frames = [frame for frame in found.frames if frame.axis == "length"]
    assert tab.get_attribute("#step", "max") == str(len(frames) - 1)
    for step, frame in enumerate(frames):
        tab.locator("#step").fill(str(step))
        assert tab.inner_text("#stepped") == f"{frame.value:g}"
        t = len(frame.marks)
        assert tab.evaluate("maps[0].keys.length") == t
        point(tab, 0, t - 1, 0)
        shown = float(tab.inner_text("#readout").split("softmax ")[1].split(";")[0])
        assert shown == pytest.approx(frame.maps[0].weights[0, 0, -1, 0].item(), abs=2e-5)
    point(tab, 0, 70, 3, "click")
    tab.locator("#step").fill("0")
    assert "query" not in state(tab)  # the shorter prompt has no such query
    assert "one standard deviation" in tab.inner_text("#band")
    assert tab.locator("#sort").is_disabled()  # a mean has no values to sort by
    tab.select_option("#show", "scores")
    tab.select_option("#scale", "all")
    ends = tab.evaluate("[0, 1, 2].map(step => (state.step = step, draw(), maps[0].end))")
    visible = [torch.ones(len(frame.marks), len(frame.marks)).tril() for frame in frames]
    shown = [(scores.scores * seen).abs() for frame, seen in zip(frames, visible, strict=True) for scores in frame.maps]
    greatest = [max(one.max().item(), other.max().item()) for one, other in zip(shown[::2], shown[1::2], strict=True)]
    assert len(set(greatest)) == 3
    assert ends == pytest.approx([max(greatest)] * 3, rel=1e-3)  # colours do not change their meaning on the way


def test_numbers_are_weights_scores_or_weights_times_n(visit, pair):
    found, path = pair
    tab = visit(path)
    seen = found.frames[0].maps[1]
    for show, true in (
        ("weights", seen.weights[0, 0, 6, 2]),
        ("scores", seen.scores[0, 0, 6, 2]),
        ("times", 7 * seen.weights[0, 0, 6, 2]),
    ):
        tab.select_option("#show", show)
        assert tab.evaluate("shown(frame(), 1, 0, 0, 6, 2)") == pytest.approx(true.item(), rel=1e-6)
    tab.select_option("#show", "weights")
    row = tab.locator("#row tbody tr").nth(1).inner_text().split("\t")
    weights = seen.weights[0, 0, 6].double()
    entropy = -(weights * weights.log()).sum()
    assert row[0] == "ssa"
    assert [float(text) for text in row[1:4]] == pytest.approx(
        [1, entropy.item() / np.log(7), entropy.exp().item()], rel=1e-3
    )
    assert row[4] == "7 of 7"
    assert float(row[5].split()[0]) == pytest.approx(weights.max().item(), rel=1e-3)
    assert float(row[6]) + float(row[7]) == pytest.approx(1, abs=1e-3)  # on inputs, and on labels


def test_points_stand_at_the_values_of_the_keys(visit, pair):
    found, path = pair
    tab = visit(path)
    points = tab.evaluate("points()")
    assert len(points) == 2 * 7
    one = next(point for point in points if (point["run"], point["key"]) == (1, 2))
    assert (one["x"], one["role"]) == (-2, "x")
    assert one["y"] == pytest.approx(found.frames[0].maps[1].weights[0, 0, 6, 2].item(), rel=1e-6)
    assert "up to 2.576 in size" in tab.inner_text("#band")
    tab.check("#rows")
    assert len(tab.evaluate("points()")) == 2 * 28


def test_window_of_the_last_queries(visit, tmp_path, look, write, point):
    found = look("ssa", last=3, heads="1")
    tab = visit(write(found, tmp_path / "prompt.html"))
    assert tab.locator("#grid button").count() == 2
    assert tab.inner_text("#chosen") == "Layer 0, head 1"
    assert tab.evaluate("maps[0].rows") == 3
    point(tab, 0, 4, 4)
    assert "From x₃ = 3 to x₃ = 3" in tab.inner_text("#readout")
    weights = found.frames[0].maps[0].weights[0, 0, 2].tolist()
    assert tab.evaluate("attention(0, 0, 0)[2]") == pytest.approx(weights, rel=1e-6)


def test_bars_of_one_standard_deviation_end_at_0(visit, pair):
    tab = visit(pair[1], "#axis=length&step=0")
    tab.evaluate("for (const run of [0, 1]) numbers(frame(), run, 'spread').fill(0.2)")
    tab.check("#rows")
    drawn = """(() => {
      const lines = [], words = [], pen = svgPen([]);
      Object.assign(pen, { line: (...line) => lines.push(line), text: (...text) => words.push(text) });
      drawPoints(pen, 720, 300);
      const inks = ["--one", "--two"].map(css), zero = words.find(text => text[2] === "0" && text[4]?.align === "end");
      return [zero[1], lines.filter(line => inks.includes(line[4])).map(line => [line[1], line[3]])];
    })()"""
    zero, bars = tab.evaluate(drawn)
    beyond = tab.evaluate("points().filter(point => point.wide > point.y).length")
    assert len(bars) > beyond > 20
    assert all(tip < foot <= zero + 1e-6 for foot, tip in bars)  # pixels count downwards
    assert sum(abs(foot - zero) < 1e-6 for foot, _ in bars) == beyond
    assert "cut at 0" in tab.inner_text("#band")


def test_answers_are_said_to_be_of_the_prompt_itself(visit, pair):
    tab = visit(pair[1])
    assert tab.inner_text("#whose") == "Prediction and truth of this prompt"
    tab.select_option("#axis", "sigma")
    itself = "Prediction and truth of the prompt itself; the maps show means over other prompts"
    assert tab.inner_text("#whose") == itself
    assert tab.locator("#answers tbody tr").count() == 4


@pytest.mark.parametrize(("width", "beside"), [(1280, 3), pytest.param(420, 1, marks=pytest.mark.exhaustive)])
def test_short_prompts_have_their_maps_side_by_side(visit, pair, width, beside):
    tab = visit(pair[1], viewport={"width": width, "height": 900})
    lefts = tab.evaluate("[...document.querySelectorAll('#maps canvas')].map(map => map.getBoundingClientRect().left)")
    assert len(set(lefts)) == beside


@pytest.mark.parametrize("width", few(1, [420, 1280]))
def test_maps_of_long_prompts_are_shown_whole(visit, long, width):
    tab = visit(long[1], viewport={"width": width, "height": 900})
    boxes = "[...document.querySelectorAll('#maps > div')].map(box => [box.scrollWidth, box.clientWidth])"
    for needed, there in tab.evaluate(boxes):
        assert needed <= there
        assert there > 0.85 * width - 40  # a map has the page for itself
    side, cells = tab.evaluate("[maps[0].side, maps[0].keys.length]")
    assert cells == 199
    assert (side >= 4) == (width == 1280)
