"""The page answers to pointer, keys and address."""

import pytest

from tests.cases import few

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_clicks_choose_a_head_and_keep_a_cell(visit, pair, point, state):
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


def test_hidden_cells_cannot_be_kept(visit, pair, point, state):
    tab = visit(pair[1])
    point(tab, 0, 1, 5, "click")
    assert "query" not in state(tab)
    point(tab, 0, 1, 5)
    assert "softmax hidden; ssa hidden" in tab.inner_text("#readout")


def test_keys_move_layer_head_query_and_key(visit, pair, state):
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


def test_keys_are_sorted_and_the_address_remembers(visit, pair, point):
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
    "hash", few(1, ["#layer=9&head=-1&query=99&key=x&sort=sideways&axis=__proto__", "#%", "#query=1&key=5"])
)
def test_bad_addresses_are_ignored(visit, pair, hash, state):
    tab = visit(pair[1], hash)
    assert {key: state(tab)[key] for key in ("layer", "head", "sort", "axis")} == {
        "layer": "0", "head": "0", "sort": "position", "axis": "prompt",
    }  # fmt: skip
    assert "query" not in state(tab)


@pytest.mark.parametrize("width", [420, 1100])
@pytest.mark.exhaustive
def test_numbers_are_told_beside_the_pointer(visit, pair, point, width):
    tab = visit(pair[1], viewport={"width": width, "height": 700})
    assert tab.locator("#tip").is_hidden()
    for run, query, key in ((0, 4, 2), (1, 6, 6), (2, 0, 0)):
        point(tab, run, query, key)
        box = tab.locator("#tip").bounding_box()
        x, y = tab.evaluate(
            "([run, query, key]) => (({ left, top, side }, at) => [at.left + left + (key + 0.5) * side, "
            "at.top + top + (query + 0.5) * side])"
            "(maps[run], $('maps').querySelectorAll('canvas')[run].getBoundingClientRect())",
            [run, query, key],
        )
        sides = ((x, box["x"], box["width"]), (y, box["y"], box["height"]))
        nearest = [min(max(at, low), low + size) for at, low, size in sides]
        assert abs(nearest[0] - x) + abs(nearest[1] - y) < 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 700
    point(tab, 0, 4, 2)
    seen = [found.weights[0, 0, 4, 2].item() for found in pair[0].frames[0].maps]
    head, *lines = tab.inner_text("#tip").splitlines()
    assert head == "x₃ = 3 → x₂ = −2"
    assert [line.rpartition(" ")[0] for line in lines] == ["softmax", "ssa", "ssa − softmax"]
    spoken = [float(line.rpartition(" ")[2].replace("−", "-")) for line in lines]
    assert spoken == pytest.approx([*seen, seen[1] - seen[0]], rel=2e-3, abs=1e-6)
    point(tab, 0, 1, 5)
    assert tab.inner_text("#tip").splitlines()[1:] == ["hidden from the query"]
    tab.locator("h1").hover()
    assert tab.locator("#tip").is_hidden()


def test_arrow_keys_need_no_focus(visit, pair, state):
    tab = visit(pair[1])
    assert tab.evaluate("document.activeElement === document.body")
    tab.keyboard.press("ArrowRight")
    assert (state(tab)["layer"], state(tab)["head"]) == ("0", "1")
    tab.keyboard.press("Alt+ArrowLeft")  # back, for the browser
    tab.keyboard.press("ArrowDown")  # the page is scrolled
    assert (state(tab)["layer"], state(tab)["head"]) == ("0", "1")
    tab.keyboard.press("Shift+ArrowUp")
    assert state(tab)["query"] == "5"
    tab.locator("#grid button").first.hover()
    tab.keyboard.press("ArrowDown")
    assert (state(tab)["layer"], state(tab)["head"]) == ("1", "1")
    tab.locator("#show").focus()
    tab.keyboard.press("ArrowRight")  # belongs to the list
    assert state(tab)["head"] == "1"
