"""Figures for print: their widths, their letters, their fonts, and that a grey copy says the same."""

import contextlib
import re
import zlib

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from icl_lab.base.errors import LabError
from icl_lab.base.grid import Grid
from icl_lab.figures import lines, maps, paper
from icl_lab.figures.base import MAP, encode
from icl_lab.figures.files import encoded


def curves(width=9.6):
    """Three normalizers whose lines cross."""
    values = {rule: [[1.0 + n * k] * 2 for k in range(4)] for n, rule in enumerate(("softmax", "ssa", "lssa"))}
    return lines.rivals([1, 2, 4, 8], values, {}, axis="sigma", title="title", label="error", log=True, width=width)


def heat_map():
    rows = [{"x": x, "y": y, "metric": "m", "value": x * y, "stderr": 0, "count": 1} for x in (1, 2) for y in (1, 2)]
    grid = Grid.of(rows, ["x", "y"], task="t", attn="a", preset="p", spec="s", seed=0)
    return maps.heat_map(grid, "y", "x", title="t", label="m")


def fonts(pdf):
    """The kinds of fonts in a PDF, those of its compressed parts too."""
    parts = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):
            parts.append(zlib.decompress(stream))
    kinds = rb"/Subtype\s*/(Type3|TrueType|Type1|Type0|CIDFontType2)"
    return {kind.decode() for part in parts for kind in re.findall(kinds, part)}


@pytest.mark.parametrize(("draw", "columns", "width"), [(curves, 0, 6.75), (curves, 1, 3.25), (heat_map, 0, 3.25)])
def test_a_figure_is_as_wide_as_its_columns(draw, columns, width):
    figure = paper.styled(draw(), "paper", columns)
    assert figure.get_figwidth() == width
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert sizes
    assert paper.LEAST <= min(sizes) <= max(sizes) <= paper.MOST


def test_a_figure_that_is_told_its_width_is_drawn_for_it():
    asked = []
    paper.drawn(lambda width: asked.append(width) or curves(width), "paper", 1)
    paper.drawn(lambda width: asked.append(width) or curves(width), "screen")
    assert asked == [3.25, 9.6]


@pytest.mark.parametrize("draw", [curves, heat_map])
@pytest.mark.slow
def test_fonts_are_embedded_as_type_42(draw):
    pdf = encode(paper.styled(draw(), "paper"), "pdf")
    assert "Type3" not in fonts(pdf)
    assert {"Type0", "CIDFontType2"} & fonts(pdf)
    assert b"/FontFile2" in pdf


def test_lines_differ_without_their_colours():
    figure = paper.styled(curves(), "paper")
    (axes,) = figure.axes
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    dashes = {line._dash_pattern[1] and tuple(line._dash_pattern[1]) for line in named}
    assert len(dashes) == len({line.get_marker() for line in named}) == len(named) == 3
    assert next(line for line in named if line.get_label() == "softmax").get_linestyle() == "-"
    (legend,) = [legend for legend in (*figure.legends, axes.get_legend()) if legend]
    for handle, line in zip(legend.legend_handles, named, strict=True):
        assert (handle.get_linestyle(), handle.get_marker()) == (line.get_linestyle(), line.get_marker())


def test_long_lines_have_few_markers():
    figure = Figure()
    axes = figure.subplots()
    for name, color in (("a", "#0072b2"), ("b", "#d55e00")):
        axes.plot(range(1000), range(1000), color=color, label=name)
    paper.styled(figure, "paper")
    assert all(line.get_markevery()[1] == 125 for line in axes.lines)
    assert axes.lines[0].get_markevery()[0] != axes.lines[1].get_markevery()[0]  # not on one another


def test_bars_differ_without_their_colours():
    figure = Figure()
    axes = figure.subplots()
    for at, color in enumerate(("#0072b2", "#d55e00", "#009e73")):
        axes.bar([at], [1], color=color)
    paper.styled(figure, "paper")
    assert len({bar.get_hatch() for box in axes.containers for bar in box}) == 3


def test_strokes_that_are_no_curves_stay():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 2, 3], color="#0072b2", label="a")
    axes.plot([1, 2, 3], [3, 2, 1], color="#d55e00", label="b")
    stroke = axes.plot([2, 2], [1, 3], color="#0072b2")[0]  # an interval
    other = axes.axhline(2, color="0.5")
    paper.styled(figure, "paper")
    assert (stroke.get_linestyle(), other.get_linestyle()) == ("-", "-")
    assert stroke.get_marker() == "None"


def test_a_map_is_even_in_lightness():
    from matplotlib import colormaps

    red, green, blue, _ = colormaps[MAP](np.linspace(0, 1, 50)).T
    assert (np.diff(0.2126 * red + 0.7152 * green + 0.0722 * blue) > 0).all()


@pytest.mark.parametrize(
    ("style", "columns", "said"), [("papr", 0, "Did you mean 'paper'"), ("paper", 3, "must be 1 or 2")]
)
def test_what_is_no_style(style, columns, said):
    with pytest.raises(LabError, match=said):
        paper.styled(heat_map(), style, columns)


@pytest.mark.slow
def test_a_screen_keeps_its_figure():
    assert encode(paper.styled(heat_map(), "screen"), "png") == encode(heat_map(), "png")


@pytest.mark.parametrize("style", paper.STYLES)
def test_a_figure_shows_itself_without_pyplot(style):
    figure = paper.styled(heat_map(), style)
    data, about = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert about == {"width": round(96 * figure.get_figwidth())}
    assert isinstance(figure, Figure)


@pytest.mark.slow
def test_studies_have_figures_for_print_only_where_asked():
    assert set(encoded({}, {"a": heat_map()}, ["png"])) == {"a.png"}
    with paper.as_well():
        data = encoded({}, {"a": heat_map()}, ["png"])
    assert set(data) == {"a.png", "a-paper.pdf"}
    assert data["a.png"] == encode(heat_map(), "png")  # as it was
    assert set(encoded({}, {"a": heat_map()}, ["png"])) == {"a.png"}


@pytest.mark.exhaustive
def test_the_command_line_writes_them(run, tmp_path):
    small = ["train.steps=5", "train.batch=8", "model.width=16", "test.axes.length=5,12", "test.axes.sigma_x=1"]
    words = ["--task", "linear", "--preset", "smoke", *(word for each in small for word in ("--set", each))]
    _, err = run.ok("sweep", "--attn", "ssa", *words, "--style", "paper")
    (drawn,) = (tmp_path / "results").rglob("*-paper.pdf")
    assert drawn.name == "heat-map-paper.pdf"
    assert "Type3" not in fonts(drawn.read_bytes())
    out, err = run.ok("compare", "--attn", "ssa", "--attn", "softmax", *words, "--style", "paper")
    (folder,) = (tmp_path / "results").glob("compare-*")
    written = {path.stem for path in folder.glob("*.pdf")}
    assert written >= {f"{name}-paper" for name in ("forest", "curves", "ratios", "maps")}
    assert not paper.wanted()
