"""Pages in a real browser: nothing is fetched, no script fails, nothing is cut on a phone."""

import pytest

from icl_lab import tasks
from icl_lab.comparison import page
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.comparison.study import Study
from icl_lab.grid import Grid
from icl_lab.runs.spec import resolve

RULES = {"softmax": 1.0, "ssa": 0.5, "lssa": 0.9}


def grid(rule, factor, seed):
    rows = [
        {"attn": name, "sigma_x": 1.0, "sigma_f": s, "length": 40.0, "value": scale * s * s * (1 + 0.1 * seed)}
        for s in (1.0, 2.0, 4.0, 6.0, 10.0)
        for name, scale in ((rule, factor), ("reference:zero", 2.0))
    ]
    who = {"task": "linear", "preset": "lite", "spec": "0", "seed": seed, "metric": "mse-code", "count": 64}
    return Grid.of(rows, ["sigma_x", "sigma_f", "length"], **who)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    spec = resolve("linear", "softmax")
    grids = {rule: [grid(rule, factor, seed) for seed in (0, 1, 2)] for rule, factor in RULES.items()}
    made = Study(tasks.build("linear"), grids, "softmax", {"sigma_x": 1.0, "sigma_f": 1.0, "length": 40.0})
    claims = Table(["claim", "verdict"], [Row(["A sentence of some length " * 8, "SUPPORTED"])], words=True)
    text = page.html(
        made, spec, page.pictures(made), "icl-lab compare", "Made here.", [Section("Claims", claims, ["A note."])]
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text)
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_report_opens_from_disk_and_asks_for_nothing(browser, report, width, scheme):
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    asked, complaints = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    tab.goto(report.as_uri(), wait_until="load")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    sizes = tab.evaluate("[...document.images].map(image => [image.complete, image.naturalWidth, image.alt.length])")
    assert len(sizes) == 3
    assert all(done and wide > 300 and words for done, wide, words in sizes)
    ink, paper = tab.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    dark = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200
    assert dark == (scheme == "dark")
    assert ink != paper
    tab.close()
