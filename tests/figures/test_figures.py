"""Pictures say what the grid says: numbers, labels, scales and marks, read back from the figure."""

import io
import math
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from matplotlib.text import Text
from PIL import Image

from icl_lab.base.grid import Grid
from icl_lab.figures import bounds, ranks
from icl_lab.figures.base import REFERENCE, encode, pixels, short, writer
from icl_lab.figures.heads import MANY, curves
from icl_lab.figures.lines import rivals
from icl_lab.figures.maps import effects, heat_map, side_by_side
from icl_lab.figures.training import learning_curve


@pytest.fixture
def grid():
    rows = [
        {"sigma": s, "length": n, "metric": "mse", "value": s * n / 10, "stderr": 0.1, "count": 4}
        for s in (1.0, 10.0)
        for n in (10.0, 40.0, 200.0)
    ]
    return Grid.of(rows, ["sigma", "length"], task="t", attn="a", preset="p", spec="0", seed=0)


def draw(grid, **options):
    return heat_map(grid, "sigma", "length", title="t", label="error", **options)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_every_cell_carries_its_number_under_its_labels(grid):
    axes = draw(grid).axes[0]
    assert texts(axes) == [short(v) for v in (1, 4, 20, 10, 40, 200)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "40", "200"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "10"]
    assert axes.get_xlabel() == "length"
    assert draw(grid, names={"length": "length of the prompt"}).axes[0].get_xlabel() == "length of the prompt"
    assert np.array_equal(axes.images[0].get_array(), [[1, 4, 20], [10, 40, 200]])


def test_colours_are_logarithmic_where_the_numbers_span_decades(grid):
    assert isinstance(draw(grid, log=True).axes[0].images[0].norm, LogNorm)
    assert not isinstance(draw(grid, log=False).axes[0].images[0].norm, LogNorm)
    narrow = Grid(grid.frame.assign(value=1.0))
    assert not isinstance(draw(narrow, log=True).axes[0].images[0].norm, LogNorm)


def test_the_training_cell_is_outlined_where_it_was_measured(grid):
    (mark,) = draw(grid, training={"sigma": 10.0, "length": 40.0}).axes[0].patches
    assert mark.get_xy() == (0.5, 0.5)
    assert not draw(grid, training={"sigma": 3.0, "length": 40.0}).axes[0].patches


def test_a_gap_stays_a_gap(grid):
    assert len(texts(draw(Grid(grid.frame.assign(value=[1.0, np.nan, 3, 4, 5, 6]))).axes[0])) == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.0083, "8.3e−3"), (0.12, "0.12"), (3.44, "3.4"), (56.4, "56"), (999.4, "999")),
        *((11_300, "11.3k"), (0.999, "1.0"), (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")),
    ],
)
def test_two_digits_that_fit_a_cell(value, text):
    assert short(value) == text


@pytest.mark.slow
def test_the_same_figure_gives_the_same_bytes(grid):
    for kind in ("png", "svg"):
        assert encode(draw(grid), kind) == encode(draw(grid), kind)
    assert encode(draw(grid), "png")[:4] == b"\x89PNG"
    assert b"<svg" in encode(draw(grid), "svg")


def test_pixels_are_those_that_savefig_writes(grid):
    file, figure = io.BytesIO(), draw(grid)
    before = figure.canvas
    found = np.asarray(pixels(figure))
    assert figure.canvas is before
    draw(grid).savefig(file, format="png")
    assert np.array_equal(found, np.asarray(Image.open(file).convert("RGB")))


def test_maps_side_by_side_share_their_scale():
    tables = {"a": {(1.0, 1.0): 1.0, (1.0, 2.0): 2.0}, "b": {(1.0, 1.0): 50.0, (1.0, 2.0): 100.0}}
    figure = side_by_side(tables, "sigma", "length", label="error", log=True)
    norms = [axes.images[0].norm for axes in figure.axes if axes.images]
    assert [(norm.vmin, norm.vmax) for norm in norms[:2]] == [(1, 100)] * 2
    assert [axes.get_title() for axes in figure.axes[:2]] == ["a", "b"]


def test_unclear_effects_are_hatched_and_small_ones_pale():
    def drawn(one, other, **options):
        return effects({"a": {(1.0, 1.0): one, (1.0, 2.0): other}}, "sigma", "length", label="log2", **options)

    figure = drawn((-2.0, True), (0.5, False))
    axes = figure.axes[0]
    assert texts(axes) == ["-2.00", "+0.50"]
    (hatched,) = axes.patches
    assert hatched.get_hatch()
    assert hatched.get_x() == 0.5
    norm = axes.images[0].norm
    assert (norm.vmin, norm.vcenter, norm.vmax) == (-2, 0, 2)
    for made, said in ((figure, True), (drawn((0.5, True), (0.1, True)), False)):
        words = " ".join(text.get_text() for text in made.findobj(Text))
        assert ("hatched: not clear" in words) == said
    ends = [drawn((size, True), (-0.01, True), least=0.32).axes[0].images[0].norm.vmax for size in (0.02, 2.0)]
    assert ends == [0.32, 2]


def test_effects_of_powers_of_two_are_written_as_ratios():
    figure = effects({"a": {(1, 1): (1.0, True), (1, 2): (-1.0, False)}}, "sigma", "length", label="l", ratio=True)
    assert texts(figure.axes[0]) == ["2.00", "0.50"]
    assert texts_of_ticks(figure.axes[-1].xaxis) == ["0.5", "0.667", "0.8", "1", "1.25", "1.5", "2"]


@pytest.mark.parametrize(("where", "scale"), [([0, 0.5, 1, 2, 4], "linear"), ([0.5, 1, 2, 4], "log")])
def test_an_axis_that_begins_at_0_is_linear(where, scale):
    figure = rivals(where, {"softmax": [[0.1]] * len(where)}, {}, axis="noise", title="t", label="e", log=False)
    assert figure.axes[0].get_xscale() == scale


def test_rivals_show_means_seeds_and_references():
    rules = {"softmax": [[1.0, 3.0], [10.0, 30.0]], "ssa": [[2.0, 2.0], [5.0, 5.0]]}
    references = {"reference:zero": [40.0, 60.0], "reference:least-squares": [1e-12, 1e-12]}
    axes = rivals([1, 10], rules, references, axis="sigma_f", title="t", label="e", log=True).axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn["softmax"] == [2, 20]
    assert drawn["ssa"] == [2, 5]
    assert [text.get_text() for text in axes.texts] == ["zero"], "rounding errors would squeeze what there is to see"
    assert axes.get_ylim()[0] > 1e-3


@pytest.mark.parametrize("log", [False, True])
def test_names_of_references_stand_in_the_order_of_their_ends(log):
    """Two that end close by share a place between them, the upper one above; a normalizer that rises sets the scale."""
    ends = {"a": 2.0, "b": 2.06, "c": 3.0, "d": 10.0}
    references = {f"reference:{name}": [1.0, end] for name, end in ends.items()}
    axes = rivals([1, 10], {"softmax": [[1.0], [10.0]]}, references, axis="n", title="t", label="e", log=log).axes[0]
    assert texts(axes) == ["d", "c", "b\na"]
    assert axes.texts[-1].xy[1] == pytest.approx(math.sqrt(2.0 * 2.06) if log else 2.03)


def texts_of_ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize(("lengths", "said"), [((41, 41), ["41"]), ((11, 41), ["11", "41"])])
def test_learning_curves_show_loss_and_lengths_that_prompts_had(lengths, said):
    rows = [{"step": 50 * at, "loss": 2.0 / at, "length": length} for at, length in enumerate(lengths, 1)]
    figure = learning_curve("ssa", rows, title="t", label="training loss")
    loss, length = figure.axes
    assert list(loss.lines[0].get_ydata()) == [2.0, 1.0]
    assert list(length.lines[0].get_ydata()) == list(lengths)
    assert loss.get_yscale() == "log"
    assert "not the tested error" in length.get_xlabel().replace("\n", " ")
    figure.canvas.draw()
    assert texts_of_ticks(length.yaxis) == said


@pytest.mark.slow
def test_a_stored_grid_is_drawn_without_torch(grid, tmp_path):
    (tmp_path / "grid.csv").write_text(grid.csv())
    script = """
import sys
from pathlib import Path
from icl_lab.figures.base import encode
from icl_lab.figures.maps import heat_map
from icl_lab.base.grid import Grid
encode(heat_map(Grid.read(Path(sys.argv[1])), "sigma", "length", title="t", label="e"), "png")
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "grid.csv")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_cell_without_finite_answers_is_hatched_and_no_number():
    table = {(1.0, 1.0): 0.5, (1.0, 2.0): np.inf, (2.0, 1.0): np.nan, (2.0, 2.0): 1.0}
    (axes, *_) = side_by_side({"softmax": table}, "down", "across", label="error", log=False).axes
    assert [patch.get_xy() for patch in axes.patches if patch.get_hatch()] == [(0.5, -0.5)]
    assert {text.get_text() for text in axes.texts} == {"0.5", "1.0"}


def test_a_rate_of_non_numeric_answers_is_hatched():
    table = {(1.0, 1.0): 0.5, (1.0, 2.0): 0.25, (2.0, 1.0): 0.0, (2.0, 2.0): 1.0}
    both, lost = {"softmax": table, "ssa": table}, {"ssa": {(2.0, 1.0)}}
    drawn = side_by_side(both, "down", "across", label="error", log=False, lost=lost)
    patches = {axes.get_title(): [p.get_xy() for p in axes.patches if p.get_hatch()] for axes in drawn.axes[:2]}
    assert patches == {"softmax": [], "ssa": [(-0.5, 0.5)]}
    assert {text.get_text() for text in drawn.axes[1].texts} == {"0.5", "0.25", "0", "1.0"}


def test_many_heads_are_a_band_few_are_lines():
    def lines(count):
        return {"metric": {"softmax": [[(1, head), (2, 2 * head)] for head in range(count)]}}

    few, many = (curves(lines(n), title="t", across="n", scales={}).axes[0] for n in (MANY, MANY + 1))
    assert (len(few.lines), len(few.collections)) == (MANY + 1, 0)
    assert (len(many.lines), len(many.collections)) == (1, 1)
    (band,) = many.collections
    ends = band.get_paths()[0].get_extents()
    assert (ends.ymin, ends.ymax) == (4, 72)  # of 0 to 40 at the first place and twice that at the second


def test_the_law_of_the_bound_shows_each_model_and_kind_once():
    dots = [
        bounds.BoundDot("softmax", "narrow", 13.0, 8.0, 140.0),
        bounds.BoundDot("ssa", "narrow", 13.0, 7.9, 130.0),
        bounds.BoundDot("softmax", "wide", 17.0, 17.0, math.nan),
    ]
    marks, stars = {"narrow": "o", "wide": "s", "absent": "^"}, {"printed": bounds.BoundDot("ssa", "", 20.0, 28.0, 8.0)}
    both = bounds.law(dots, title="law", marks=marks, floor=[(5.0, 110.0), (30.0, 6.0)], printed=stars, error="error")
    left, right = both.axes
    drawn = [(line.get_marker(), *np.ravel(line.get_xydata())) for line in left.lines if len(line.get_xdata()) == 1]
    assert drawn == [("o", 13, 8), ("o", 13, 7.9), ("s", 17, 17), ("*", 20, 28)]
    errors = [(line.get_marker(), *np.ravel(line.get_xydata())) for line in right.lines if len(line.get_xdata()) == 1]
    assert errors[:2] == [("o", 8, 140), ("o", 7.9, 130)]
    assert errors[-1] == ("*", 28, 8)
    names = [text.get_text() for text in both.legends[0].get_texts()]
    assert names == ["softmax", "ssa", "narrow", "wide", "printed"]
    alone = bounds.law(dots[:2], title="law", marks={"narrow": "o"})
    assert len(alone.axes) == 1
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["softmax", "ssa"]


def test_a_reference_begins_where_it_is_above_0():
    """By hand: on a logarithmic axis no line has a point at or below 0, from which it would fall vertically."""
    errors, floor = {"softmax": [[1.0], [2.0], [3.0]]}, {"floor": [0.0, 0.5, 1.0]}
    figure = rivals([1, 2, 3], errors, floor, axis="x", title="", label="y", log=True)
    (drawn,) = (line for line in figure.axes[0].lines if line.get_color() == REFERENCE)
    assert [math.isnan(y) for y in drawn.get_ydata()] == [True, False, False]


def test_losses_have_three_decimals_rates_and_decades_two_digits():
    assert writer(log_scale=False, rates=False)(1.26149) == "1.261"
    assert writer(log_scale=True, rates=False)(1.26149) == "1.3"
    assert writer(log_scale=False, rates=True)(0.26149) == "0.26"


OUTCOMES = ("wrong", "first only", "all right")


def drawn(count):
    """How many trials each of two panels shows, and what stands below them; every third trial ends each way."""
    scores, ends = [1 - place / count for place in range(count)], [place % 3 for place in range(count)]
    trials = {"softmax": (scores, ends), "ssa": (scores[: count // 2], ends[: count // 2])}
    figure = ranks.needles(dict.fromkeys(trials, scores[:5]), trials, OUTCOMES, title="t")
    panels = [axes for axes in figure.axes if "trials" in axes.get_xlabel()]
    return [sum(len(line.get_xdata()) for line in axes.lines) for axes in panels], panels[0].get_xlabel()


def test_all_of_few_trials_and_every_fifth_of_many_are_shown():
    assert drawn(ranks.SHOWN) == ([600, 300], "trials, best first")
    assert drawn(4 * ranks.SHOWN + 1) == ([481, 240], "trials, best first (one in 5 is shown)")
