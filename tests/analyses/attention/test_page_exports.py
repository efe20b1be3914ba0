"""What the page hands out: files, tables, paper; and words that would do harm."""

import csv
import io
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from icl_lab.analyses.attention import page
from icl_lab.api.show import Page
from icl_lab.tasks.base import Mark
from tests.analyses.attention.shown import HIDDEN_CORNER

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>prompt.hurt = 1</script><img src=x onerror='prompt.hurt = 2'>"


def test_exports_hold_what_is_shown(visit, pair, download):
    found, path = pair
    tab = visit(path, "#layer=1&head=0&query=6&key=2")
    files = {}
    for kind in ("png", "svg", "csv"):
        name, files[kind] = download(tab, kind)
        assert name == f"attention-layer-1-head-0.{kind}"
    assert files["png"][:4] == b"\x89PNG"
    picture = ElementTree.fromstring(files["svg"])
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"softmax, layer 1, head 0", "ssa − softmax, layer 1, head 0", "x₄ = 70", "y₁ = True"} <= set(words)
    rows = list(csv.DictReader(io.StringIO(files["csv"].decode())))
    assert len(rows) == 2 * 28
    for row in rows:
        maps = found.frames[0].maps[["softmax", "ssa"].index(row["run"])]
        query, key = int(row["query"]), int(row["key"])
        assert float(row["weight"]) == pytest.approx(maps.weights[1, 0, query, key].item(), rel=1e-6)
        assert float(row["score"]) == pytest.approx(maps.scores[1, 0, query, key].item(), rel=1e-6)
        assert row["key_token"] == found.frames[0].marks[key].label


def test_tables_say_what_the_maps_show(visit, pair):
    found, path = pair
    tab = visit(path)
    tab.locator("#table summary").click()
    captions = tab.locator("#tables caption").all_inner_texts()
    assert captions == [f"{name}, layer 0, head 0: weights" for name in ("softmax", "ssa", "ssa − softmax")]
    cells = tab.locator("#tables table").nth(1).locator("tbody tr").nth(6).inner_text().split("\t")
    weights = found.frames[0].maps[1].weights[0, 0, 6].tolist()
    assert [float(cell) for cell in cells[1:8]] == pytest.approx(weights, rel=1e-3)
    assert tab.locator("#tables table").nth(1).locator("tbody tr").first.inner_text().split("\t")[2] == "hidden"
    tab.locator("#grid button[data-layer='1'][data-head='1']").first.click()
    assert tab.locator("#tables caption").first.inner_text() == "softmax, layer 1, head 1: weights"


def test_tables_are_there_without_a_script(visit, pair):
    found, path = pair
    tab = visit(path, java_script_enabled=False)
    assert "a script that this browser does not run" in tab.inner_text("body")
    assert tab.locator("#answers tbody tr").count() == 4
    tab.locator("#table summary").click()
    rows = tab.locator("#tables tbody tr").all_inner_texts()
    assert len(rows) == 2 * 2 * 2
    last = rows[-1].split("\t")
    assert last[:2] == ["ssa", "1.1"]
    assert float(last[2]) == pytest.approx(found.frames[0].maps[1].weights[1, 1, 6, 0].item(), rel=0.05)


def test_printed_page_is_white_without_controls(visit, pair):
    tab = visit(pair[1], color_scheme="dark")
    tab.evaluate("window.onbeforeprint()")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.locator("#controls").is_hidden()
    assert tab.locator("#maps canvas").first.is_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.evaluate("window.onafterprint()")
    assert tab.evaluate("css('--paper')") != "#fff"


@pytest.mark.exhaustive
def test_hostile_words_do_nothing(visit, tmp_path, look, point, download):
    found = look("ssa")
    object.__setattr__(found.runs[0], "name", HOSTILE)
    object.__setattr__(found.asked, "origin", HOSTILE)
    found.frames[0].marks[0] = Mark("x", 1, HOSTILE, 1.0)
    path = tmp_path / "hostile.html"
    object.__setattr__(found, "command", HOSTILE)
    path.write_text(page.page(found, HOSTILE))
    tab = visit(path)
    tab.locator("#table summary").click()
    point(tab, 0, 6, 0)
    assert HOSTILE in tab.inner_text("#readout")
    svg = download(tab, "svg")[1]
    tab.wait_for_timeout(100)
    assert tab.evaluate("prompt.hurt") is None
    assert tab.locator("img").count() == 0
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert not names & {"script", "img", "image"}


def test_notebook_frame_works(visit, pair, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><p>a cell</p>{Page(pair[1])._repr_html_()}")
    tab = visit(path)
    frame = tab.frame_locator("iframe")
    frame.locator("#grid button[data-layer='1']").first.click()
    assert frame.locator("#chosen").inner_text() == "Layer 1, head 0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.exhaustive
def test_exported_pictures_are_white(visit, pair, download, scheme):
    tab = visit(pair[1], color_scheme=scheme)
    before = tab.evaluate("css('--paper')")
    png, svg = (download(tab, kind)[1] for kind in ("png", "svg"))
    assert Image.open(io.BytesIO(png)).convert("RGB").getpixel((2, 2)) == (255, 255, 255)
    svg = svg.decode()
    assert 'height="100%" fill="#fff"' in svg
    assert "#16181b" not in svg
    assert tab.evaluate("css('--paper')") == before  # the page keeps its scheme
    assert (sum(tab.evaluate(HIDDEN_CORNER)) < 300) == (scheme == "dark")
