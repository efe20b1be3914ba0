"""The attention page in a real browser: what it shows, what it answers to, and what it hands out."""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from icl_lab.analyses.attention import page, prompt, study
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.sweep import load_or_train
from icl_lab.tasks.base import Mark

CPU = torch.device("cpu")
SMALL = ["train.steps=5", "train.batch=8", "model.width=16", "model.heads=2", "model.layers=2"]
HOSTILE = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    return Lab(Store(tmp_path_factory.mktemp("results")), CPU, lambda text: None)


def look(lab, *rules, text="1,-2,3,70", task="every", means=2, **window):
    runs = [lab.store.run(resolve(task, rule, "smoke", SMALL), 0) for rule in rules]
    asked = prompt.read(text, runs[0].spec)
    return study.look(runs, lab, asked, study.window(runs, asked, **window), means)


def write(found, path):
    path.write_text(page.page(found, "icl-lab attention", "Made here.").html)
    return path


@pytest.fixture(scope="module")
def pair(laboratory):
    """Softmax and SSA on the prompt of the paper's Figure 2, and where their page is."""
    found = look(laboratory, "softmax", "ssa")
    return found, write(found, laboratory.store.root / "pair.html")


@pytest.fixture
def visit(browser):
    """Opens a page; afterwards nothing was asked of any network and no script has failed."""
    tabs, asked, complaints = [], [], []

    def call(path, hash="", **options):
        tab = browser.new_page(viewport={"width": 1100, "height": 900}, **options)
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.goto(path.as_uri() + hash, wait_until="load")
        tabs.append(tab)
        return tab

    yield call
    for tab in tabs:
        tab.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert complaints == []


def state(tab):
    return dict(pair.split("=") for pair in tab.evaluate("location.hash.slice(1)").split("&"))


def point(tab, run, query, key, act="hover"):
    """Moves the pointer to a cell of a large map, or clicks it."""
    x, y = tab.evaluate(
        f"(m => [m.left + (m.keys.indexOf({key}) + 0.5) * m.side, m.top + ({query} - frame().first + 0.5) * m.side])"
        f"(maps[{run}])"
    )
    place = {"x": x, "y": y}
    getattr(tab.locator("#maps canvas").nth(run), act)(position=place)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_the_page_opens_from_disk_and_fits(visit, pair, width, scheme):
    tab = visit(pair[1], color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.locator("#grid button").count() == 2 * 2 * 2
    assert tab.locator("#maps canvas").count() == 3  # both runs and the difference
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200) == (scheme == "dark")
    # The hidden corner of a map is hatched on the paper of its scheme.
    corner = (
        "Array.from(document.querySelector('#maps canvas').getContext('2d').getImageData(%s, 1, 1).data.slice(0, 3))"
    )
    spot = tab.evaluate(
        "(m => [m.left + 5.7 * m.side, m.top + 0.4 * m.side].map(x => Math.round(x * devicePixelRatio)))(maps[0])"
    )
    shade = sum(tab.evaluate(corner % f"{spot[0]}, {spot[1]}"))
    assert (shade < 300) == (scheme == "dark")


@pytest.mark.parametrize("rule", ["ssa", "raw"])
def test_numbers_read_back_from_the_page_are_those_that_the_layer_uses(visit, laboratory, rule, tmp_path):
    found = look(laboratory, rule, text="1,-2,3,70,5,-6")
    tab = visit(write(found, tmp_path / "page.html"))
    model = load_or_train(found.runs[0].run, laboratory)
    for layer in (0, 1):
        part, caught = model.blocks[layer].attention, {}
        attend = part.rule.attend

        def catch(q, k, v, visible, attend=attend, caught=caught):
            caught["v"], caught["o"] = v[0], attend(q, k, v, visible)[0]
            return caught["o"].unsqueeze(0)

        part.rule.attend = catch
        with torch.no_grad():
            model(found.asked.prompt.tokens)
        for head in (0, 1):
            rows = tab.evaluate(f"attention(0, {layer}, {head})")
            weights = np.zeros((11, 11))
            for row, cells in enumerate(rows):
                weights[row, : len(cells)] = cells
            made, true = weights @ caught["v"][head].numpy(), caught["o"][head].numpy()
            np.testing.assert_allclose(made, true, atol=1e-5 * abs(true).max())


def test_figure_2_is_labelled_as_in_the_paper(visit, pair):
    tab = visit(pair[1])
    assert "The prompt reads 1 True −2 False 3 False 70." in tab.inner_text("body")
    tab.locator("summary").click()
    labels = ["x₁ = 1", "y₁ = True", "x₂ = −2", "y₂ = False", "x₃ = 3", "y₃ = False", "x₄ = 70"]
    table = tab.locator("#tables table").first
    assert table.locator("th").all_inner_texts()[:8] == ["query", *labels]
    assert [row.split("\t")[0] for row in table.locator("tbody tr").all_inner_texts()] == labels
    # The same words stand on the axes of the drawn maps.
    drawn = tab.evaluate(
        "(words => (drawMap({ ...svgPen([]), text: (x, y, text) => words.push(text) }, maps[0]), words))([])"
    )
    assert drawn[0] == "softmax, layer 0, head 0"
    assert sorted(drawn[1:15]) == sorted(2 * labels)
    truth = tab.locator("#answers tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in truth] == ["True", "False", "False", "False"]


def test_a_click_chooses_a_head_and_a_cell_is_kept_and_let_go(visit, pair):
    found, path = pair
    tab = visit(path)
    tab.locator("#grid button[data-run='1'][data-layer='1'][data-head='1']").click()
    assert tab.inner_text("#chosen") == "Layer 1, head 1"
    assert tab.locator("#grid button[aria-pressed=true]").count() == 2  # in both runs
    weight = [each.weights[1, 1, 4, 2].item() for each in found.frames[0].maps]
    point(tab, 1, 4, 2)
    for canvas in (0, 1):  # linked: the words hold both runs and the difference
        point(tab, canvas, 4, 2)
        said = tab.inner_text("#readout")
        assert said.startswith("From x₃ = 3 to x₂ = −2: softmax ")
        spoken = [float(part.split()[-1].replace("−", "-")) for part in said.split(". Scores")[0].split("; ")]
        assert spoken == pytest.approx([*weight, weight[1] - weight[0]], rel=2e-3, abs=1e-6)
    assert "query" not in state(tab)
    point(tab, 0, 4, 2, "click")
    assert (state(tab)["query"], state(tab)["key"]) == ("4", "2")
    point(tab, 0, 6, 0)
    assert tab.inner_text("#readout").endswith("Kept.")
    assert "From x₃ = 3 to x₂" in tab.inner_text("#readout")
    point(tab, 0, 4, 2, "click")
    assert "query" not in state(tab)


def test_a_hidden_cell_cannot_be_kept(visit, pair):
    tab = visit(pair[1])
    point(tab, 0, 1, 5, "click")
    assert "query" not in state(tab)
    point(tab, 0, 1, 5)
    assert "softmax hidden; ssa hidden" in tab.inner_text("#readout")


def test_keys_move_layer_head_query_and_key(visit, pair):
    tab = visit(pair[1])
    tab.locator("#grid button[aria-pressed=true]").first.focus()
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key, there in (
        ("ArrowRight", ("0", "1")),
        ("ArrowRight", ("0", "1")),  # the last head
        ("ArrowDown", ("1", "1")),
        ("ArrowLeft", ("1", "0")),
        ("ArrowUp", ("0", "0")),
    ):
        tab.keyboard.press(key)
        assert (state(tab)["layer"], state(tab)["head"]) == there
        focus = tab.evaluate("({ ...document.activeElement.dataset })")
        assert (focus["layer"], focus["head"]) == there
    tab.locator("#maps canvas").first.focus()
    for key, there in (
        ("Shift+ArrowUp", ("5", "5")),
        ("Shift+ArrowLeft", ("5", "4")),
        ("Shift+ArrowUp", ("4", "4")),
        ("Shift+ArrowUp", ("3", "3")),  # a query sees nothing after itself
    ):
        tab.keyboard.press(key)
        assert (state(tab)["query"], state(tab)["key"]) == there
    tab.keyboard.press("Escape")
    assert "query" not in state(tab)


def test_the_slider_goes_through_the_means(visit, pair):
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
    ends = tab.evaluate("[0, 1, 2].map(step => (state.step = step, draw(), maps[0].end))")
    visible = [torch.ones(len(frame.marks), len(frame.marks)).tril() for frame in frames]
    greatest = [
        max((maps.scores * seen).abs().max().item() for maps in frame.maps)
        for frame, seen in zip(frames, visible, strict=True)
    ]
    assert len(set(greatest)) == 3
    assert ends == pytest.approx([max(greatest)] * 3, rel=1e-3)  # colours do not change their meaning on the way


def test_keys_are_sorted_and_the_address_remembers_it(visit, pair):
    tab = visit(pair[1])
    tab.select_option("#sort", "value")
    assert tab.evaluate("maps[0].keys") == [2, 3, 5, 0, 1, 4, 6]  # -2 -1 -1 1 1 3 70
    point(tab, 0, 4, 4, "click")
    tab.select_option("#sort", "distance")
    assert tab.evaluate("maps[0].keys") == [4, 5, 0, 1, 2, 3, 6]  # from 3: labels stand beside their inputs
    tab.select_option("#scale", "head")
    tab.check("#log")
    address = tab.evaluate("location.hash")
    again = visit(pair[1], address)
    assert again.evaluate("maps[0].keys") == [4, 5, 0, 1, 2, 3, 6]
    assert (again.input_value("#scale"), again.is_checked("#log")) == ("head", True)
    assert again.inner_text("#readout").startswith("From x₃ = 3 to x₃ = 3:")


@pytest.mark.parametrize(
    "hash", ["#layer=9&head=-1&query=99&key=x&sort=sideways&axis=__proto__", "#%", "#query=1&key=5"]
)
def test_an_address_that_makes_no_sense_is_passed_over(visit, pair, hash):
    tab = visit(pair[1], hash)
    assert {key: state(tab)[key] for key in ("layer", "head", "sort", "axis")} == {
        "layer": "0", "head": "0", "sort": "position", "axis": "prompt",
    }  # fmt: skip
    assert "query" not in state(tab)


def test_numbers_are_weights_scores_or_weights_times_keys(visit, pair):
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


def test_hidden_zero_small_and_signed_cells_look_different(visit, laboratory, tmp_path, monkeypatch):
    def sharp(run, lab):
        model = load_or_train(run, lab)
        with torch.no_grad():
            model.blocks[0].attention.qkv.weight *= 30
        return model

    monkeypatch.setattr(study, "load_or_train", sharp)
    found = look(laboratory, "sparsemax", "softmax", text="5,-9,30,-70,40")
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


def test_exports_hold_what_is_shown(visit, pair, tmp_path):
    found, path = pair
    tab = visit(path, "#layer=1&head=0&query=6&key=2")
    files = {}
    for kind in ("png", "svg", "csv"):
        with tab.expect_download() as caught:
            tab.click(f"#{kind}")
        caught.value.save_as(tmp_path / kind)
        assert caught.value.suggested_filename == f"attention-layer-1-head-0.{kind}"
        files[kind] = (tmp_path / kind).read_bytes()
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
    tab.locator("summary").click()
    captions = tab.locator("#tables caption").all_inner_texts()
    assert captions == [f"{name}, layer 0, head 0: weights" for name in ("softmax", "ssa", "ssa − softmax")]
    cells = tab.locator("#tables table").nth(1).locator("tbody tr").nth(6).inner_text().split("\t")
    weights = found.frames[0].maps[1].weights[0, 0, 6].tolist()
    assert [float(cell) for cell in cells[1:8]] == pytest.approx(weights, rel=1e-3)
    assert tab.locator("#tables table").nth(1).locator("tbody tr").first.inner_text().split("\t")[2] == "hidden"
    tab.locator("#grid button[data-layer='1'][data-head='1']").first.click()
    assert tab.locator("#tables caption").first.inner_text() == "softmax, layer 1, head 1: weights"


def test_without_a_script_the_tables_are_there(visit, pair):
    found, path = pair
    tab = visit(path, java_script_enabled=False)
    assert "a script that this browser does not run" in tab.inner_text("body")
    assert tab.locator("#answers tbody tr").count() == 4
    tab.locator("summary").click()
    rows = tab.locator("#tables tbody tr").all_inner_texts()
    assert len(rows) == 2 * 2 * 2
    last = rows[-1].split("\t")
    assert last[:2] == ["ssa", "1.1"]
    assert float(last[2]) == pytest.approx(found.frames[0].maps[1].weights[1, 1, 6, 0].item(), rel=0.05)


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


def test_on_paper_there_are_no_controls_and_the_ink_is_dark(visit, pair):
    tab = visit(pair[1], color_scheme="dark")
    tab.evaluate("window.onbeforeprint()")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.locator("#controls").is_hidden()
    assert tab.locator("#maps canvas").first.is_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.evaluate("window.onafterprint()")
    assert tab.evaluate("css('--paper')") != "#fff"


def test_hostile_words_do_nothing(visit, laboratory, tmp_path):
    found = look(laboratory, "ssa")
    object.__setattr__(found.runs[0], "name", HOSTILE)
    object.__setattr__(found.asked, "origin", HOSTILE)
    found.frames[0].marks[0] = Mark("x", 1, HOSTILE, 1.0)
    path = tmp_path / "hostile.html"
    path.write_text(page.page(found, HOSTILE, HOSTILE).html)
    tab = visit(path)
    tab.locator("summary").click()
    point(tab, 0, 6, 0)
    assert HOSTILE in tab.inner_text("#readout")
    with tab.expect_download() as caught:
        tab.click("#svg")
    caught.value.save_as(tmp_path / "hostile.svg")
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("img").count() == 0
    names = {element.tag.rpartition("}")[2] for element in ElementTree.parse(tmp_path / "hostile.svg").iter()}
    assert not names & {"script", "img", "image"}


def test_a_notebook_frame_works(visit, pair, tmp_path):
    found, _ = pair
    path = tmp_path / "notebook.html"
    made = page.page(found, "icl-lab attention", "Made here.")
    path.write_text(f"<!doctype html><p>a cell</p>{made._repr_html_()}")
    tab = visit(path)
    frame = tab.frame_locator("iframe")
    frame.locator("#grid button[data-layer='1']").first.click()
    assert frame.locator("#chosen").inner_text() == "Layer 1, head 0"


def test_a_window_of_the_last_queries(visit, laboratory, tmp_path):
    found = look(laboratory, "ssa", last=3, heads="1")
    tab = visit(write(found, tmp_path / "window.html"))
    assert tab.locator("#grid button").count() == 2
    assert tab.inner_text("#chosen") == "Layer 0, head 1"
    assert tab.evaluate("maps[0].rows") == 3
    point(tab, 0, 4, 4)
    assert "From x₃ = 3 to x₃ = 3" in tab.inner_text("#readout")
    assert json.loads(tab.evaluate("JSON.stringify(attention(0, 0, 0)[2])")) == pytest.approx(
        found.frames[0].maps[0].weights[0, 0, 2].tolist(), rel=1e-6
    )
