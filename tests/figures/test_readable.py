"""Words stay inside their figure, ticks are where something was measured, and no panel is empty."""

import math

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from icl_lab.figures import bounds, heads, lines, ranking, ranks, shares, training
from icl_lab.figures.attention import attention
from icl_lab.figures.axes import NARROW, WIDE, constant, log_ticks, plain, ticks, wrapped
from icl_lab.figures.maps import effects, side_by_side

LONG = "a title that goes on for longer than any panel of this figure is wide, with a comparison in it, and a half"
RULES = ("softmax", "ssa", "sigmoid:bias=visible,l1=yes")


def line(f, places=(1, 3, 10, 30, 100, 1000)):
    return [(float(x), f(x)) for x in places]


def maps(value, count=3):
    names = [*RULES, *(f"variant {n}" for n in range(count))][:count]
    return {n: {(y, x): value(y, x) for y in (1.0, 3.0) for x in map(float, range(1, 11))} for n in names}


def loss(start, steps=40):
    return [{"step": 50.0 * (k + 1), "loss": start / (k + 1), "length": 11.0 + k // 4} for k in range(steps)]


def dots(scale=1.0):
    return {rule: ranking.Dot(scale * (k + 1), scale * k + 0.5, scale * k + 2, [scale * (k + 1)]) for k, rule in
            enumerate(RULES)}  # fmt: skip


def panel():
    return {rule: [line(lambda x, k=k: k + math.log(x)), line(lambda x, k=k: k + x / 900)] for k, rule in
            enumerate(RULES)}  # fmt: skip


MADE = {
    "curves": lambda: heads.curves({"one": panel(), LONG: panel()}, title=LONG, across="factor", scales={}),
    "rivals": lambda: lines.rivals([1, 2, 3], {r: [[1.0, 2], [2.0, 3], [4.0, 9]] for r in RULES}, {}, axis="sigma",
                                   title=LONG, label="error", log=True, width=NARROW),
    "disturbance": lambda: lines.disturbance([1, 10, 100], {LONG: ({r: [1.0, 2, 3] for r in RULES}, {}, True)},
                                             title=LONG * 2),
    "laws": lambda: lines.laws([1, 2], {"seed 0": [1.0, 2]}, {"log": [1.0, 2]}, title=LONG),
    "bounds": lambda: bounds.curves({LONG: bounds.BoundPanel(panel())}, title=LONG, trained=2, reach=900),
    "effects": lambda: effects(maps(lambda y, x: (x / 10, True)), "sigma_x", "sigma_f", label=LONG, width=NARROW),
    "maps": lambda: side_by_side(maps(lambda y, x: x**y, 5), "sigma_x", "sigma_f", label=LONG, log=True, width=NARROW),
    "ranking": lambda: ranking.ranking({LONG: ranking.Panel(dots(), {})}, RULES, title=LONG, label=LONG, log=True,
                                       width=NARROW),
    "forest": lambda: ranking.forest({r: (d, "0.9 [0.8, 1.0], p 1") for r, d in dots().items()}, title=LONG, label=LONG,
                                     baseline="ssmax", ratio=True, width=NARROW),
    "losses": lambda: training.losses({r: [loss(2.0)] for r in RULES}, title=LONG, label="loss", baseline="softmax",
                                      width=NARROW),
    "many losses": lambda: training.losses({f"{LONG[:40]} {k}": [loss(2.0)] for k in range(10)}, title=LONG,
                                           label="loss", baseline=f"{LONG[:40]} 0"),
    "learning curve": lambda: training.learning_curve("ssa", loss(2.0), title=LONG, label="loss"),
    "needles": lambda: ranks.needles({r: [1.0, 0.5] for r in RULES}, {r: ([1.0, 0.5], [0, 2]) for r in RULES},
                                     ("a", "b", "c"), title=LONG),
    "shares": lambda: shares.bars({LONG: {"times 10": {"MLPs": [0.5, 1.5]}, "times 100": {"norms": [-7.0]}}},
                                  ["MLPs", "norms", "values"], title=LONG, label=LONG),
    "attention": lambda: attention({LONG: np.tril(np.ones((1, 2, 4, 4)))}, list("abcd"), [0], [0, 1], title=LONG),
}  # fmt: skip


def words(figure):
    """Every text but the labels of ticks, which the layout makes room for."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    yield from (text for legend in legends for text in legend.get_texts())
    parts = [figure, *getattr(figure, "subfigs", [])]
    yield from (text for part in parts for text in part.texts)
    for part in parts:
        yield from (text for text in (part._suptitle, part._supxlabel, part._supylabel) if text)
    for axes in figure.axes:
        yield from (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_no_word_leaves_its_figure(name):
    figure = MADE[name]()
    FigureCanvasAgg(figure).draw()
    outer, shown = figure.bbox, [text for text in words(figure) if text.get_text().strip()]
    assert len(shown) > 1
    for text in shown:
        box = text.get_window_extent()
        inside = outer.x0 - 2 <= box.x0 and box.x1 <= outer.x1 + 2 and outer.y0 - 2 <= box.y0 and box.y1 <= outer.y1 + 2
        assert inside, f"{text.get_text()!r} reaches to {box} of {outer}"


def test_a_metric_without_values_gets_no_panel_and_is_named():
    empty = {rule: [line(lambda x: math.nan)] for rule in RULES}
    figure = heads.curves({"known": panel(), "unknown": empty}, title="t", across="x", scales={})
    assert [axes.get_ylabel() for axes in figure.axes] == ["known"]
    assert "without any value: unknown" in figure.get_suptitle()


def test_what_is_known_at_one_place_is_dots():
    """A line of one point is nothing to see. Dots stand in order, each normalizer's beside those of the others."""
    seen = {"softmax": [[(16.0, 0.5)], [(16.0, 0.1)], [(16.0, 0.9)]], "ssa": [[(16.0, 0.7)]]}
    axes = heads.curves({"error": seen}, title="t", across="answer", scales={}, mark=2.0).axes[0]
    softmax, its_median, ssa, other_median = axes.lines
    assert softmax.get_marker() == ssa.get_marker() == "."
    assert list(softmax.get_ydata()) == [0.1, 0.5, 0.9]
    assert list(its_median.get_ydata()) == [0.5, 0.5]
    assert list(ssa.get_ydata()) == [0.7]
    assert max(softmax.get_xdata()) < min(ssa.get_xdata())
    assert its_median.get_xdata()[0] < its_median.get_xdata()[1]
    assert other_median.get_label() == "ssa"
    assert axes.get_xlabel() == "answer: 16; dots from least to greatest"


def test_a_share_far_below_zero_is_cut_and_said():
    panels = {"softmax": {"times 10": {"MLPs": [-7.0, -5.0], "norms": ()}, "times 100": {"norms": [-0.25]}}}
    axes = shares.bars(panels, ["MLPs", "norms"], title="t", label="share").axes[0]
    assert [[bar.get_width() for bar in bars] for bars in axes.containers] == [[-1.0], [-0.25]]
    assert [text.get_text() for text in axes.texts] == ["← −6.00", "−0.25"]
    assert axes.get_xlim()[0] < -1


def test_a_metric_that_is_zero_throughout_says_so():
    zero = {rule: [line(lambda x: 0.0)] for rule in RULES}
    figure = heads.curves({"error": zero, "other": panel()}, title="t", across="x", scales={})
    assert [text.get_text() for text in figure.axes[0].texts] == ["all values are 0"]
    assert not figure.axes[1].texts


def test_whole_places_get_whole_ticks_that_do_not_touch():
    def shown(places):
        axes = Figure().subplots()
        axes.plot(places, places)
        ticks(axes.xaxis, places)
        return list(axes.get_xticks())

    assert all(float(place).is_integer() for place in shown(range(1, 41)))
    assert shown([0, 1, 2]) == [0, 1, 2]
    assert shown([1, 2, 1000]) != [1, 2, 1000]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.3), (2.0, 9.0), (1.0, 60.0), (1e-3, 1e4), (1e-12, 1e3)])
@pytest.mark.slow
def test_logarithmic_axes_have_two_plain_ticks(low, high):
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_ticks(axes.yaxis)
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 2 <= len(shown) <= 12
    assert all("^" not in plain(tick) for tick in shown)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.05, "0.05"), (20_000, "20,000"), (1e-6, "1e−6"), (1e7, "1e7")]
)
def test_ticks_are_read_as_plain_numbers(value, text):
    assert plain(value) == text


def test_text_is_broken_to_its_width():
    assert wrapped("one two three", 0.6) == "one two\nthree"
    assert max(map(len, wrapped("w" * 100, 1.0).split("\n"))) <= 12
    assert wrapped("a\nb", 5) == "a\nb"


def test_constant_ignores_what_is_not_known():
    assert constant([0.0, math.nan, 0.0]) == 0
    assert constant([0.0, 1.0]) is None
    assert constant([math.nan]) is None


@pytest.mark.slow
def test_maps_take_as_many_columns_as_there_is_room():
    tables = maps(lambda y, x: x, 4)
    for width, columns in ((WIDE, 2), (NARROW, 1)):
        figure = side_by_side(tables, "sigma_x", "sigma_f", label="error", log=False, width=width)
        lefts = {round(axes.get_subplotspec().colspan.start) for axes in figure.axes[:4]}
        assert len(lefts) == columns
        assert figure.get_figwidth() <= width


def test_a_forest_is_sorted_and_hollow_where_nothing_is_sure():
    dot, clear = ranking.Dot(0.9, 0.5, 0.95), ranking.Dot(2.0, 1.5, 3.0, clear=True)
    rows = {"ssa": (clear, "words of ssa"), "lssa": (dot, "words of lssa")}
    axes = ranking.forest(rows, title="", label="l", baseline="softmax", ratio=True).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lssa", "ssa"]
    assert [text.get_text() for text in axes.texts] == ["words of lssa", "words of ssa"]
    points = {line.get_ydata()[0]: line for line in axes.lines if line.get_marker() not in ("None", "|", None)}
    assert [points[0].get_fillstyle(), points[1].get_fillstyle()] == ["none", "full"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the best above"


def test_a_ranking_keeps_the_order_it_is_given():
    figure = ranking.ranking({"a": ranking.Panel(dots(), {"reference:3-nn": 2.0, "reference:far": 1e9})}, RULES[::-1],
                             title="t", label="l", log=True)  # fmt: skip
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(RULES[::-1])
    assert [text.get_text().strip() for text in axes.texts] == ["3-nn"]


def test_bounds_not_above_0_are_counted_and_not_drawn():
    """On a logarithmic axis a line to a mean below 0 would fall through the floor."""
    panels = {"N(0, 1)": {"softmax": [[5.0, 6.0], [-9.0, 2.0], [math.nan, math.nan]], "ssa": [[4.0], [3.0], [0.0]]}}
    axes = bounds.control([1.0, 9.0, 10.0], panels, title="t").axes[0]
    assert axes.get_title() == "N(0, 1)\n(2 not above 0: not drawn)"
    line, dots, *_ = axes.lines
    assert line.get_ydata()[0] == 5.5
    assert math.isnan(line.get_ydata()[1])
    assert sorted(y for y in dots.get_ydata() if not math.isnan(y)) == [2.0, 5.0, 6.0]
    assert axes.get_ylim()[0] > 0.5


def test_onsets_inside_the_training_range_are_left_out():
    made = bounds.BoundPanel({"ssa": [line(lambda x: x)]}, onsets={"ssa": [-5.0, 0.0, 1.5, 8.0, 2000.0]})
    axes = bounds.curves({"f": made}, title="t", trained=2.0, reach=900).axes[0]
    onsets = [point for part in axes.lines if part.get_marker() == "^" for point in part.get_xdata()]
    assert onsets == [-5.0, 8.0]


def test_a_disturbance_has_intervals_where_they_are_known():
    panels = {"error": ({"ssa": [1.0, 2.0]}, {}, False)}
    spans = {"error": {"ssa": [(0.5, 1.5), (1.0, 3.0)]}}
    axes = lines.disturbance([1, 10], panels, title="t", spans=spans).axes[0]
    assert [list(part.get_ydata()) for part in axes.lines[1:]] == [[0.5, 1.5], [1.0, 3.0]]


def test_all_rules_on_one_value_are_told_in_words():
    panels = {"error": ({"ssa": [0.0, 0.0], "lssa": [0.0, 0.0]}, {}, False)}
    axes = lines.disturbance([1, 10], panels, title="t").axes[0]
    assert [text.get_text() for text in axes.texts] == ["every normalizer: 0 at every factor"]


def test_smoothed_losses_begin_and_end_where_the_losses_do():
    figure = training.losses({"ssa": [loss(2.0)]}, title="", label="loss", baseline="ssa")
    smooth = figure.axes[0].lines[-1].get_ydata()
    assert smooth[0] == pytest.approx(2.0)
    assert smooth[-1] == pytest.approx(2.0 / 40)


def test_many_rules_get_a_panel_each():
    rules = {f"variant {k}": [loss(2.0)] for k in range(10)}
    figure = training.losses(rules, title="", label="loss", baseline="variant 0")
    assert [axes.get_title() for axes in figure.axes] == list(rules)
