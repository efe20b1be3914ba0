"""Pages in a real browser: nothing is fetched, no script fails, nothing is cut on a phone."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from icl_lab.comparison import page
from icl_lab.comparison.page import Row, Section, Table
from tests.comparison.made import SPEC, facts, study, times

pytestmark = pytest.mark.slow

RULES = {"softmax": times(1.0), "ssa": times(0.5, 0.01), "sigmoid:bias=visible,l1=yes": times(0.9, 0.1)}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    made = study(RULES)
    known = facts(made)
    claims = Table(["claim", "verdict"], [Row(["A sentence of some length " * 8, "SUPPORTED"])], words=True)
    text = page.html(
        made,
        SPEC,
        page.pictures(made, known),
        "icl-lab compare " + "--attn a-long-name-without-a-space " * 9,
        "Made here.",
        [Section("Claims", claims, ["A note."])],
        facts=known,
        files={"comparison.csv": "a,b\n1,2\n"},
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text)
    return path


@pytest.fixture
def opened(watched, report):
    """Opens the report."""
    return lambda width, scheme: watched(report.as_uri(), width, scheme)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_report_opens_from_disk_and_asks_for_nothing(opened, width, scheme):
    tab, asked, complaints = opened(width, scheme)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    sizes = tab.evaluate("[...document.images].map(image => [image.complete, image.naturalWidth, image.alt.length])")
    assert len(sizes) == 5
    assert all(done and wide > 300 and words for done, wide, words in sizes)
    ink, paper = tab.evaluate("(body => [body.color, body.backgroundColor])(getComputedStyle(document.body))")
    dark = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200
    assert dark == (scheme == "dark")
    assert ink != paper


@pytest.mark.parametrize("width", [360, 420, 1280])
def test_figures_lie_inside_their_card_at_every_width(opened, width):
    tab, _, _ = opened(width, "dark")
    boxes = tab.evaluate(
        """[...document.images].map(image => {
            const box = image.getBoundingClientRect(), card = image.closest(".card").getBoundingClientRect();
            return [box.left - card.left, card.right - box.right, card.right - innerWidth, box.width];
        })"""
    )
    for left, right, beyond, wide in boxes:
        assert left >= 0
        assert right >= 0
        assert beyond <= 0
        assert wide > 0.6 * min(width, 900)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.exhaustive
def test_figures_stand_on_the_ground_of_the_page(opened, scheme):
    """The corner of each figure, which nothing is drawn in, has the colour of its card: no white block in the dark."""
    tab, _, _ = opened(1280, scheme)
    for figure in tab.query_selector_all(".card img"):
        shot = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("RGB")).astype(int)
        card = figure.evaluate("image => getComputedStyle(image.closest('.card')).backgroundColor")
        ground = [int(part) for part in re.findall(r"\d+", card)]
        assert np.abs(shot[2, 2] - ground).max() <= 2
        assert (sum(ground) < 200) == (scheme == "dark")


@pytest.mark.exhaustive
def test_a_telephone_gets_the_narrow_figures(opened):
    tabs = [opened(width, "light")[0] for width in (420, 1280)]
    widths = (tab.evaluate("[...document.images].map(image => image.naturalWidth)") for tab in tabs)
    assert all(small <= 600 < large for small, large in zip(*widths, strict=True))


def test_the_first_column_stays_while_a_table_is_scrolled(opened):
    tab, _, _ = opened(420, "light")
    moved = tab.evaluate(
        """(() => {
            const box = document.querySelector("#numbers .wide");
            const first = box.querySelector("tbody th"), last = box.querySelector("tbody td:last-child");
            const before = [first.getBoundingClientRect().left, last.getBoundingClientRect().left];
            box.scrollLeft = 200;
            return [box.scrollLeft, first.getBoundingClientRect().left - before[0],
                    last.getBoundingClientRect().left - before[1], first.getBoundingClientRect().width];
        })()"""
    )
    scrolled, first, last, wide = moved
    assert scrolled > 50
    assert first == 0
    assert last == -scrolled
    assert 90 < wide < 200


def test_tables_are_no_wider_than_the_column_at_a_desk(opened):
    tab, _, _ = opened(1280, "light")
    for name in ("numbers", "seeds"):
        fits = tab.evaluate(f'(box => box.scrollWidth <= box.clientWidth)(document.querySelector("#{name} .wide"))')
        assert fits, name


def test_links_lead_to_their_anchors(opened):
    tab, _, _ = opened(420, "light")
    names = tab.evaluate('[...document.querySelectorAll("nav a")].map(link => link.getAttribute("href"))')
    assert len(names) >= 10
    for name in names:
        tab.evaluate(f"document.querySelector('nav a[href=\"{name}\"]').click()")
        assert tab.evaluate(f'document.querySelector("{name}").getBoundingClientRect().top < innerHeight')
