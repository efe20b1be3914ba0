"""The site in a real browser, from disk: it opens, finds, sorts, compares, and asks nobody."""

import math
from pathlib import Path

import pytest

from icl_lab.comparison.rates import Curve
from icl_lab.comparison.statistics import paired
from icl_lab.extras.site.build import Stock, build
from icl_lab.extras.site.comparisons import Comparison
from icl_lab.extras.site.place import write
from icl_lab.runs.spec import resolve
from tests.site import made

pytestmark = pytest.mark.slow
FAULTS = Path(__file__).with_name("faults.js").read_text()
HOSTILE = "<script>alert(1)<\\script>\"><img src=x onerror=alert(1)>' {{ 7*7 }}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    store = made.store(folder)
    runs = []
    for seed, luck in ((0, 1.0), (1, 1.1), (2, 0.95)):
        runs.append(made.finished(store, "softmax", seed, luck))
        date = "2026-11-22"
        runs.append(made.finished(store, "ssa", seed, 0.5 * luck, finished=date, learned={"b 0.0": 0.5, "b 0.1": 1.5}))
    made.finished(store, "softmax", 0, task="every")
    made.called(store, HOSTILE)
    table = f"It was found.\n\n| {HOSTILE} | b |\n| --- | --- |\n| a | 1 |\n"
    made.study(store.root, "compare-x", table, members=runs, command=HOSTILE)
    made.study(store.root, HOSTILE, HOSTILE)
    damaged = made.finished(store, "ssmax")
    (damaged.folder / "grid.csv").write_text("x")
    effects = [paired([1.0, 1.1, 0.9], [0.5, 0.7, 0.4]), paired([1.0], [0.5])]  # of one seed there is no interval
    shown = ("made", "smoke", "softmax", "error", True, "sigma", [1, 2], [1, 1], 3, [("ssa", 3, effects)])
    curve = Curve(resolve("linear", "softmax", "smoke"), {1: [0.2], 2: [0.1], 4: [math.inf]}, 1.0, log=True)
    compared = Comparison(*shown, {"softmax": curve, HOSTILE: curve}, "mean squared error")
    entries = made.claim("SSA errs less", "below"), made.claim(HOSTILE, "inconclusive")
    judge = made.claims(*entries, comparisons=[compared])
    stock = Stock.of(store, folder, judge=judge, cards=made.cards())
    write(build(stock), folder / "site")
    return folder / "site"


@pytest.fixture
def opened(watched, place):
    """Opens a page of the site; returns the tab and what it asks for. No page complains unless a test says so."""
    heard = []

    def call(page="index.html", width=1280, scheme="light", at=None, complains=False):
        tab, asked, complaints = watched(at or f"{place.as_uri()}/{page}", width, scheme)
        heard.append([] if complains else complaints)
        return tab, asked

    yield call
    assert not any(heard), heard


def page_of(place, start, folder="runs"):
    return f"{folder}/" + next(path.name for path in sorted((place / folder).glob(f"{start}*.html")))


def path_of(place, page):
    """Path of one of PAGES."""
    folders = {"study": ("compare-x", "studies"), "experiment": ("made", "experiments"), "card": ("ssa", "judge")}
    starts = {"run": "linear-ssa", "hostile": "linear-script", "damaged": "linear-ssmax"}
    return page if page.endswith(".html") else page_of(place, *folders.get(page, (starts.get(page), "runs")))


def shown(tab):
    return tab.locator("#list tbody tr:not([hidden]) td[data-c=name] a").all_text_contents()


def rows_of(tab, selector):
    return tab.eval_on_selector_all(selector, "all => all.map(row => [...row.cells].map(cell => cell.textContent))")


PAGES = [
    *("index.html", "findings.html", "runs.html", "overlay.html", "boundary.html", "extrapolation.html"),
    *("run", "hostile", "damaged", "study", "experiment", "card"),
]


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.exhaustive), (420, "dark")]
)
def test_pages_open_from_disk_without_requests_or_complaints(opened, place, width, scheme):
    for page in PAGES:
        tab, asked = opened(path_of(place, page), width, scheme)
        tab.wait_for_timeout(200)
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == [], page
        assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), page
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200
        assert dark == (scheme == "dark"), page
        assert tab.inner_text("h1").strip()
        assert tab.evaluate(FAULTS) == [], page
        assert tab.evaluate("document.querySelectorAll('[onerror], img[src=x]').length") == 0, page
        tab.close()


def test_pages_print_without_controls_and_with_whole_tables(opened, place):
    """At the width of A4 within the margins of a browser."""
    for page in PAGES:
        tab, _ = opened(path_of(place, page), width=717)
        tab.emulate_media(media="print")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 717, page
        controls = tab.locator("nav:visible, input:visible, select:visible, button:visible:not(th button)")
        assert controls.count() == 0, page
        assert tab.eval_on_selector_all(".wide", "all => all.map(e => e.scrollWidth > e.clientWidth)").count(True) == 0
        tab.close()
    tab, _ = opened()
    tab.evaluate("document.querySelectorAll('.cards tbody tr').forEach(row => { row.hidden = true; })")
    assert tab.locator(".cards tbody tr:visible").count() == 0
    tab.emulate_media(media="print")
    assert tab.locator(".cards tbody tr:visible").count() == 2  # those beyond a few, too


def test_the_table_of_cards_sorts_by_effect(opened):
    tab, _ = opened()
    clicks = {"": ["ssa", "ssmax"], "near": ["ssa", "ssmax"], "near again": ["ssmax", "ssa"]}  # 0.5 and 2
    clicks |= {"far": ["ssa", "ssmax"], "far again": ["ssa", "ssmax"]}  # which ssmax was not asked
    for click, names in clicks.items():
        if click:
            tab.click(f"[data-sort={click.split()[0]}]")
        assert [row[0] for row in rows_of(tab, ".cards tbody tr")] == names, click
    assert tab.url.endswith("#sort=-far")
    tab.click(".cards a")
    assert "ssa against softmax" in tab.inner_text("h1")


def test_without_scripts_a_line_says_what_needs_them(new_tab, place):
    tab = new_tab(java_script_enabled=False)
    for page, words in (("index.html", "Ordering"), ("runs.html", "Search"), ("findings.html", "Filters")):
        tab.goto(f"{place.as_uri()}/{page}")
        assert words in tab.inner_text("noscript"), page
    for page in ("overlay.html", path_of(place, "run"), path_of(place, "experiment")):
        tab.goto(f"{place.as_uri()}/{page}")
        assert "drawn by scripts" in tab.inner_text("noscript"), page
    tab.goto(f"{place.as_uri()}/runs.html")
    assert tab.locator("#list tbody tr:visible").count() == tab.locator("#list tbody tr").count() > 5
    tab.close()


def test_axe_has_no_complaint(opened, place):
    pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install axe-playwright-python")
    from axe_playwright_python.sync_playwright import Axe

    for page in PAGES:
        tab, _ = opened(path_of(place, page), complains=True)  # axe asks for what the policy forbids
        found = Axe().run(tab).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], page
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(opened, scheme):
    """The contrast of WCAG 2, by its formula: (L1 + 0.05) / (L2 + 0.05), at least 4.5 for text."""

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    assert (1.05) / (luminance("#767676") + 0.05) == pytest.approx(4.54, abs=0.005)  # printed by WebAIM
    tab, _ = opened(scheme=scheme)
    names = ["ink", "soft", "link", "yes", "no", "same", "open", "paper", "box"]
    read = "names => names.map(n => getComputedStyle(document.documentElement).getPropertyValue(`--${n}`).trim())"
    light = {}
    for name, color in zip(names, tab.evaluate(read, names), strict=True):
        light[name] = luminance(color if len(color) == 7 else "#" + "".join(2 * c for c in color[1:]))
    for name in names[:-2]:
        for ground in names[-2:]:
            low, high = sorted((light[name], light[ground]))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_search_and_filters_choose_rows_and_stand_in_the_address(opened):
    tab, _ = opened("runs.html")
    everything = len(shown(tab))
    tab.fill("#search", "SSA linear")
    assert set(shown(tab)) == {"ssa", "compare-x"}  # the study has that normalizer
    tab.select_option("[data-filter=kind]", "run")
    assert shown(tab) == ["ssa"]
    again, _ = opened(at=tab.url)
    assert shown(again) == ["ssa"]
    again.click("#clear")
    assert len(shown(again)) == everything
    again.select_option("[data-filter=task]", "every")
    assert shown(again) == ["softmax"]
    again.select_option("[data-filter=normalizer]", "ssa")
    assert shown(again) == []


def test_the_box_above_searches_from_every_page(opened, place):
    tab, _ = opened(page_of(place, "linear-ssa"))
    tab.fill(".find input", "ssmax")
    tab.press(".find input", "Enter")
    tab.wait_for_selector("#list")
    assert shown(tab) == ["ssmax"]


def test_columns_sort_both_ways_and_say_so(opened):
    tab, _ = opened("runs.html#kind=run&task=linear")
    for way, sign in (("ascending", 1), ("descending", -1)):
        tab.click("[data-sort=number]")
        assert tab.evaluate("document.querySelector('[data-sort=number]').parentElement.ariaSort") == way
        *some, last = tab.locator("#list tbody tr:not([hidden]) td[data-c=number]").all_text_contents()
        numbers = [sign * float(value.split()[0]) for value in some]
        assert numbers == sorted(numbers)
        assert len(set(numbers)) > 2
        assert last == ""  # a damaged run has no number, either way


def test_more_rows_than_a_few_are_shown_when_asked_for(opened):
    tab, _ = opened("runs.html")
    count = tab.evaluate(
        """() => { const body = document.querySelector("#list tbody");
          for (let i = 0; i < 80; i += 1) body.append(body.rows[0].cloneNode(true));
          return body.rows.length; }"""
    )
    tab.evaluate("document.body.append(Object.assign(document.createElement('script'), {src: 'assets/overview.js'}))")
    tab.wait_for_function("!document.getElementById('more').hidden")
    assert len(shown(tab)) == 60
    tab.click("#more")
    assert tab.evaluate("document.querySelectorAll('#list tbody tr:not([hidden])').length") == count


def test_a_map_is_read_and_moved_by_pointer_and_keyboard(opened, place):
    tab, _ = opened(page_of(place, "linear-ssa"))
    last = lambda: tab.locator("#map td").all_text_contents()[-3:]  # noqa: E731
    assert last() == ["20", "40", "200"]  # the bottom row: sigma of inputs 1, prompts of 40
    assert tab.locator("#map td.trained").all_text_contents() == ["20"]
    tab.hover("#map td >> nth=-2")
    assert "σ of functions 2, length of the prompt 40: 40" in tab.inner_text("#map .read")
    tab.focus("#map td[tabindex='0']")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        tab.keyboard.press(key)
    assert "σ of inputs 3, σ of functions 10, length of the prompt 40: 600" in tab.inner_text("#map .read")
    assert tab.locator("#map td[tabindex='0']").count() == 1
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    predictor = tab.locator("#controls select").nth(1)
    predictor.select_option("reference:zero")
    assert last() == ["120", "240", "1.2k"]
    predictor.select_option("ssa")
    tab.select_option("#seeds select", label="1")
    assert last() == ["22", "44", "220"]
    assert "seed 1" in tab.inner_text("#map caption")


def test_a_slider_moves_the_map_by_arrow_keys(opened, place):
    tab, _ = opened(page_of(place, "linear-ssa"))
    slider = "#controls input[type=range]"
    tab.focus(slider)
    tab.keyboard.press("ArrowLeft")
    assert tab.get_attribute(slider, "aria-valuetext") == "20"
    assert tab.locator("#map td").all_text_contents()[-3:] == ["10", "20", "100"]
    assert tab.evaluate("document.activeElement.type") == "range"


def test_a_comparison_is_drawn_beside_its_table(opened, place):
    tab, _ = opened(page_of(place, "made", "experiments"))
    assert "ratio to softmax" in tab.inner_text("[data-comparison]")
    assert tab.locator("[data-comparison] canvas").count() == 1
    rows = rows_of(tab, "[data-comparison] + div tbody tr")
    assert rows[:2] == [["1", "1.0", "0.521 [0.331, 0.821]"], ["2", "1.0", "0.5"]]


def test_learning_rates_are_drawn_beside_their_table(opened, place):
    tab, _ = opened(page_of(place, "made", "experiments"))
    assert tab.locator("[data-rates] canvas").count() == 1
    assert "mean squared error" in tab.inner_text("[data-rates]")
    assert HOSTILE in tab.inner_text("[data-rates]")
    rows = rows_of(tab, "[data-rates] + div tr")
    assert rows[0] == ["normalizer", "best", "rate", "least", "bracket", "error", "sensitivity", "x1", "x2", "x4"]
    assert rows[1] == ["softmax", "x1", "0.003", "x2", "x1 to x4", "0.2", "1", "0.2", "0.1", "inf"]


def test_a_link_to_a_claim_opens_at_it(opened, place):
    tab, _ = opened("findings.html")
    tab.click("text=SSA errs less")
    assert tab.text_content(":target h3") == "SSA errs less"  # which waits for the page
    assert "0.5" in tab.inner_text(":target data")


def test_curves_have_their_numbers_in_a_table(opened, place):
    tab, _ = opened(page_of(place, "linear-ssa"))
    tab.click("#curve summary")
    assert [row[:2] for row in rows_of(tab, "#curve details tbody tr")] == [["1", "20"], ["2", "40"], ["10", "200"]]
    assert "least-squares" in tab.inner_text("#curve")  # far below, and said so
    tab.click("#losses summary")
    assert "1" in tab.inner_text("#losses details tbody tr:last-child")
    assert tab.inner_text("#learned") == "Learned parameters"


def test_the_legend_says_the_values_at_the_right_end(opened, place):
    tab, _ = opened(page_of(place, "linear-ssa"))
    tab.wait_for_timeout(200)
    # σ of functions 10 times a prompt of 40, half of that of SSA; the trivial answer errs three times that.
    assert tab.locator("#curve .u-legend .u-value").all_text_contents()[:3] == ["10", "200", "1200"]


def test_the_verdict_comes_second_on_a_narrow_page(opened):
    tab, _ = opened("findings.html", width=420)
    top = "selector => document.querySelector(`.findings ${selector}`).getBoundingClientRect().top"
    assert tab.evaluate(top, ".claim") < tab.evaluate(top, ".badge") < tab.evaluate(top, ".soft")


def test_verdicts_can_be_filtered(opened):
    tab, _ = opened("findings.html")
    tab.select_option("#verdict", "as claimed")
    assert tab.inner_text("#count") == "1 of 2 claims"
    assert tab.locator(".findings li:visible .claim").all_inner_texts() == ["SSA errs less"]


def test_ticked_runs_are_drawn_on_one_chart(opened):
    tab, _ = opened("runs.html#kind=run&task=linear")
    assert tab.is_disabled("#overlay")
    for name in ("softmax", "ssa"):
        tab.check(f"#list tbody tr:not([hidden]) input[aria-label='Overlay {name}']")
    tab.click("#overlay")
    tab.wait_for_selector("#curve canvas")
    tab.click("#curve summary")
    rows = rows_of(tab, "#curve details tr")
    assert [cell.split(",")[0] for cell in rows[0][1:]] == ["softmax", "ssa"]
    # Errors are products of the axes, times the luck of a seed: 40, 44 and 38 of softmax, half of that of SSA.
    assert rows[1] == ["1", "40.67 [38, 44]", "20.33 [19, 22]"]
    assert tab.locator("#losses canvas").count() == 1
    assert tab.locator("#runs a").count() == 2


def test_an_overlay_of_unknown_or_too_many_runs_says_so(opened):
    for asked, said in (("run=nowhere", "1 of these runs is not in this site"), ("run=../../x", "Tick runs in")):
        tab, _ = opened(f"overlay.html#{asked}", complains=True)  # there is no such file
        tab.wait_for_function("said => document.getElementById('said').textContent.includes(said)", arg=said)
    tab, _ = opened("overlay.html#" + "&".join(f"run=a{i}" for i in range(9)))
    assert "At most 8 runs fit one chart; 9 are asked for." in tab.inner_text("#said")


def test_everything_can_be_reached_by_tab_and_shows_where_it_is(opened):
    tab, _ = opened("runs.html")
    seen = set()
    for _ in range(28):
        tab.keyboard.press("Tab")
        name = "e.id || e.dataset.sort || e.dataset.filter || e.textContent.trim()"
        name, outline = tab.evaluate(f"(e => [{name}, getComputedStyle(e).outlineStyle])(document.activeElement)")
        assert outline != "none", name
        seen.add(name)
    assert {"Skip to the content", "Claims", "search", "kind", "clear", "number"} <= seen


def test_a_hostile_name_is_read_as_it_is(opened, place):
    tab, _ = opened(page_of(place, "linear-script"))
    assert HOSTILE in tab.text_content("h1")
    assert HOSTILE in tab.text_content("#map")
    tab.goto(f"{place.as_uri()}/runs.html")
    assert HOSTILE in shown(tab)


def test_logarithmic_curves_are_drawn_whatever_their_ends(opened, place):
    """From 0.0097 to 256 uPlot would look for marks for ever, unless both ends are marks."""
    tab, _ = opened(page_of(place, "linear-softmax"))
    for low, high in ((0.0097125, 256.4), (1e-25, 10), (0.0117, 213.69), (3, 3), (1e-30, 1e-28), (99.9, 1e6)):
        drawn = tab.evaluate(
            """([low, high]) => {
                 const box = document.createElement("div");
                 document.body.append(box);
                 const line = { label: "a", y: [low, high], color: "#000000" };
                 site.chart(box, { x: [1, 2], lines: [line], xLabel: "x", yLabel: "y", logY: true });
                 return [...box.querySelectorAll("canvas")].map((canvas) => canvas.height);
               }""",
            [low, high],
        )
        assert drawn, (low, high)
        assert min(drawn) > 100
    tab.wait_for_timeout(100)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([40, 41], ["40", "41"]),  # nothing between two steps
        ([499_940, 499_950, 499_960], ["499.94k", "499.95k", "499.96k"]),  # not 499.9k, 500k and 500k
    ],
)
def test_ticks_of_steps_are_whole_and_where_labels_say(opened, place, steps, said):
    tab, _ = opened(page_of(place, "linear-softmax"))
    written = tab.evaluate(
        """async (x) => {
             const texts = [];
             CanvasRenderingContext2D.prototype.fillText = (text) => texts.push(text);
             const box = document.createElement("div");
             document.body.append(box);
             const line = { label: "a", y: x.map(() => 0.25), color: "#000000" };
             site.chart(box, { x, lines: [line], xLabel: "step", yLabel: "loss" });
             await new Promise((done) => setTimeout(done, 200));
             return texts;
           }""",
        steps,
    )
    assert [text for text in written if text in said] == said
    assert "500k" not in written
    assert not [text for text in written if text.startswith("40.")]
