"""The live page in a browser: what is typed, dragged, pasted and chosen is computed, as torch computes it."""

import copy
from itertools import product

import numpy as np
import pytest
import torch

from icl_lab.analyses import runner
from icl_lab.analyses.attention import OFFERED, patterns
from icl_lab.analyses.attention.maps import Maps
from icl_lab.pipeline import load_or_train
from tests.analyses.attention.shown import run_of, words_of_map

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sharp():
    """Make scores of hardly trained models large, so that normalizers differ; return what loads such a model."""
    kept = {}

    def load(run, lab):
        if run.folder not in kept:
            kept[run.folder] = load_or_train(run, lab)
            with torch.no_grad():
                for block in kept[run.folder].blocks:
                    block.attention.qkv.weight *= 20
        return copy.deepcopy(kept[run.folder])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "load_or_train", load)
        yield load


@pytest.fixture(scope="module")
def pair(sharp, look, write, laboratory):
    """Softmax and SSA with large scores on 1 True -2 False 3 False 70, and where their page is."""
    found = look("softmax", "ssa", offer=OFFERED)
    return found, write(found, laboratory.store.root / "sharp.html")


@pytest.fixture
def model(pair, sharp, laboratory):
    """The first model of the page."""
    return sharp(run_of(pair[0], laboratory), laboratory)


@pytest.fixture
def tab(visit, pair):
    """The page, open."""
    return visit(pair[1])


def press(tab, text):
    """Types all numbers of the prompt as one list."""
    tab.fill("#live-all", text)
    tab.press("#live-all", "Enter")


def slide(tab, power, release="s.onchange();"):
    """Move the slider of what inputs are multiplied by to a power of 10."""
    moved = f"s.value = '{power}'; s.oninput({{ target: s }}); {release}"
    tab.evaluate(f"(s => {{ {moved} }})(document.getElementById('live-times'))")


def answers(tab):
    """The rows of the answers that are shown."""
    return [row.split("\t") for row in tab.locator("#answers tbody tr:visible").all_inner_texts()]


def watched(model, tokens, watch=None):
    """Weights (l h t t) and outputs (t) of a prompt in torch."""
    seen = []

    def see(layer, weights, scores):
        other = watch(layer, weights) if watch else None
        seen.append((weights if other is None else other)[0])
        return other

    with torch.no_grad():
        outputs = model(torch.tensor(tokens).view(1, -1, 1), see)[0, :, 0]
    return torch.stack(seen).numpy(), outputs.numpy()


def test_typing_a_number_changes_the_page_and_reset_undoes_it(tab, pair):
    before = tab.evaluate("attention(0, 1, 1)")
    picture = "document.querySelectorAll('#maps canvas')[0].toDataURL()"
    thumb = "document.querySelector('#grid canvas').toDataURL()"
    drawn = tab.evaluate(f"[{picture}, {thumb}]")
    assert tab.locator("#live-mark").is_hidden()
    tab.locator("#live-tokens input").nth(2).fill("−7.5")
    assert tab.inner_text("#live-what") == "Recomputed in the page, not as stored: x₂ = −7.5."
    assert tab.locator("#live-tokens .changed").count() == 1
    assert tab.evaluate("attention(0, 1, 1)") != before
    assert not set(drawn) & set(tab.evaluate(f"[{picture}, {thumb}]"))
    assert "x₂ = −7.5" in tab.inner_text("#live-answers")
    assert "Truth and references are known only of the numbers" in tab.inner_text("#live-answers")
    assert tab.inner_text("#finding").startswith("At x₄ = 70 softmax answers ")
    tab.locator("#live-mark .live-back").click()
    assert tab.locator("#live-mark").is_hidden()
    assert tab.evaluate("attention(0, 1, 1)") == before
    assert tab.evaluate(f"[{picture}, {thumb}]") == drawn
    assert tab.locator("#live-answers").is_hidden()
    assert tab.locator("#live-tokens input").nth(2).input_value() == "−2"


@pytest.mark.parametrize(("width", "heads"), [(1280, 8), (420, 4)])  # on a telephone those of one run
def test_maps_of_heads_are_in_the_first_screen(visit, pair, width, heads):
    tab = visit(pair[1], viewport={"width": width, "height": 900})
    ends = tab.evaluate(
        "[...document.querySelectorAll('#grid button')].map(each => each.getBoundingClientRect().bottom)"
    )
    assert len(ends) == 8
    assert sum(end <= 900 for end in ends) >= heads


def test_the_stored_prompt_comes_back_to_a_changed_model(tab):
    button = tab.locator("#live-stored")
    assert button.is_disabled()
    press(tab, "1, 1, 5, -1, 9")
    slide(tab, 1)
    tab.locator("#live-off").check()
    button.click()
    assert tab.inner_text("#live-what") == "Recomputed in the page, not as stored: head 0.0 off."
    assert tab.input_value("#live-all") == "1, 1, -2, -1, 3, -1, 70"
    assert button.is_disabled()
    tab.locator("#live-undo").click()
    assert tab.input_value("#live-all") == "1, 1, 5, -1, 9"


def test_answers_stand_beside_stored_ones_truth_and_references(tab, pair):
    stored = [answer.answer for answer in pair[0].runs[0].answers]
    tab.locator("#live-off").check()
    head = tab.locator("#live-answers th").all_inner_texts()
    assert head[:4] == ["token", "truth", "softmax: now", "softmax: stored"]
    rows = answers(tab)
    assert [row[1] for row in rows] == ["True", "False", "False", "False"]
    assert [row[3] for row in rows] == stored
    assert [row[head.index("exact-rule")].partition(" ")[0] for row in rows] == ["True", "False", "False", "False"]
    outputs = tab.evaluate("outputs(0)")[::2]
    for row, value in zip(rows, outputs, strict=True):
        assert row[2].startswith(f"{value > 0} (logit ")
        assert float(row[2].split()[2].rstrip(")").replace("−", "-")) == pytest.approx(value, rel=1e-3)
    tab.locator("#live-off").uncheck()
    assert tab.locator("#live-answers").is_hidden()


NO_NUMBERS = {text: f"got '{text}'" for text in ("abc", "one", "NaN", "Infinity", "0x10", "1,5")}
NO_NUMBERS |= {"": "got 'nothing'", "1e400": "up to 1.00e+15", "-1e16": "up to 1.00e+15"}
NO_NUMBERS |= {"<img src=x onerror=alert(1)>": "<img"}


def test_what_is_no_number_is_one_line_and_changes_nothing(tab):
    box = tab.locator("#live-tokens input").first
    for text, says in NO_NUMBERS.items():
        box.fill("5")
        before = tab.evaluate("[attention(0, 0, 0), location.hash]")
        box.fill(text)
        assert says in tab.inner_text("#live-error")
        assert "\n" not in tab.inner_text("#live-error")
        assert box.get_attribute("aria-invalid") == "true"
        assert tab.evaluate("[attention(0, 0, 0), location.hash]") == before
        box.blur()
        assert box.input_value() == "5"
        box.fill("6")
        assert tab.inner_text("#live-error") == ""


@pytest.mark.exhaustive
def test_lists_that_are_none_change_nothing(tab):
    before = tab.evaluate("attention(0, 0, 0)")
    for text, says in (("", "got none"), ("1, x, 2", "'x'"), ("1, inf", "'inf'"), ("9e15", "9e15")):
        press(tab, text)
        assert says in tab.inner_text("#live-error")
        assert tab.evaluate("attention(0, 0, 0)") == before


@pytest.mark.exhaustive
def test_dragging_and_pasting_numbers_is_one_undo_each(tab):
    box, name = tab.locator("#live-tokens input").nth(4), tab.locator("#live-tokens span").nth(4)
    place = name.bounding_box()
    x, y = place["x"] + 5, place["y"] + 5
    tab.mouse.move(x, y)
    tab.mouse.down()
    for far in (10, 30, 50):
        tab.mouse.move(x + far, y)
        tab.wait_for_timeout(40)
    tab.mouse.up()
    assert box.input_value() == "6"  # 3 and 50 pixels of 3 / 50
    box.press("ArrowUp")
    box.press("Shift+ArrowDown")
    assert box.input_value() == "5.1"
    tab.locator("#live-tokens input").nth(1).evaluate(
        "(box, text) => { const data = new DataTransfer(); data.setData('text', text);"
        " box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, cancelable: true })); }",
        "0.5; -4\n8 9, 10 11 12 13",
    )
    assert tab.input_value("#live-all") == "1, 0.5, -4, 8, 9, 10, 11, 12, 13"
    assert tab.locator("#live-tokens input").count() == 9
    tab.locator("#live-undo").click()
    assert tab.input_value("#live-all") == "1, 1, -2, -1, 5.1, -1, 70"
    tab.locator("h1").click()
    tab.keyboard.press("Control+z")
    assert tab.input_value("#live-all") == "1, 1, -2, -1, 6, -1, 70"
    tab.locator("#live-undo").click()
    assert tab.locator("#live-mark").is_hidden()
    assert tab.locator("#live-undo").is_disabled()


@pytest.mark.exhaustive
def test_colours_reach_to_the_largest_number_that_is_there_now(tab):
    tab.select_option("#show", "scores")
    ends = [tab.evaluate("maps[0].end")]
    for text in ("1, 1, 40, -1, 3", "1, 1"):
        press(tab, text)
        scores = [tab.evaluate("([r, l, h]) => attention(r, l, h, 'scores')", at) for at in product((0, 1), repeat=3)]
        ends.append(max(abs(value) for rows in scores for row in rows for value in row))
        assert tab.evaluate("maps[0].end") == pytest.approx(ends[-1], rel=1e-6)
    assert len(set(ends)) == 3


@pytest.mark.exhaustive
def test_examples_come_and_go_as_far_as_the_positions_reach(visit, look, write, tmp_path):
    settings = ["model.positions=learned:rows=90"]
    tab = visit(write(look("softmax", means=0, settings=settings, offer=""), tmp_path / "page.html"))
    tab.locator("#live-more").click()
    assert tab.input_value("#live-all") == "1, 1, -2, -1, 3, -1, 70, -1, 70"
    assert "1 example more" in tab.inner_text("#live-what")
    tab.locator("#live-fewer").click()
    tab.locator("#live-fewer").click()
    assert tab.input_value("#live-all") == "1, 1, -2, -1, 3"
    assert tab.locator("#live-answers tbody tr").count() == 3
    press(tab, ",".join(["1"] * 91))
    said = "91 tokens do not fit into the 90 places that the model's position code has."
    assert tab.inner_text("#live-error") == said
    for _ in range(3):
        tab.locator("#live-fewer").click()
    assert tab.input_value("#live-all") == "1"
    assert tab.inner_text("#live-error") == "a prompt has at least one example."


@pytest.mark.exhaustive
def test_a_single_number_grows_into_a_prompt(visit, look, write, tmp_path):
    tab = visit(write(look("softmax", text="5", means=0, offer=""), tmp_path / "page.html"))
    tab.locator("#live-more").click()
    assert tab.locator("#live-tokens span").all_inner_texts() == ["x₁", "y₁", "x₂"]
    assert tab.evaluate("outputs(0).length") == 3
    box = tab.locator("#live-tokens input").nth(1)
    box.fill("-")  # on the way to a number
    assert tab.inner_text("#live-error") == ""
    box.fill("-1")
    assert [row[0] for row in answers(tab)] == ["x₁ = 5", "x₂ = 5"]


def test_the_slider_multiplies_inputs_and_not_labels(tab):
    slide(tab, 1)
    assert tab.inner_text("#live-timed") == "10"
    assert "inputs × 10" in tab.inner_text("#live-what")
    tab.locator("summary", has_text="tables").click()
    labels = tab.locator("#tables table").first.locator("th").all_inner_texts()[1:8]
    assert labels == ["x₁ = 10", "y₁ = True", "x₂ = −20", "y₂ = False", "x₃ = 30", "y₃ = False", "x₄ = 700"]
    scaled = tab.evaluate("outputs(0)")
    tab.locator("#live .live-back").click()
    press(tab, "10, 1, -20, -1, 30, -1, 700")
    assert tab.evaluate("outputs(0)") == scaled


def test_normalizers_are_chosen_and_refused_in_a_line(visit, tab, pair, model):
    select = tab.locator("#live-rules select").first
    offered = select.evaluate("s => [...s.options].map(option => option.value)")
    assert offered == ["", "softmax", "average", "ssmax", "ssa", "lssa+reweight:p=15"]
    select.select_option("lssa+reweight:p=15")
    assert tab.locator("#grid h3").all_inner_texts() == ["softmax → lssa+reweight:p=15", "ssa"]
    assert tab.inner_text("#live-what").endswith("lssa+reweight:p=15 in the place of softmax.")
    model.swap_rule("lssa+reweight:p=15")
    weights, outputs = watched(model, pair[0].asked.prompt.tokens.flatten().tolist())
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), outputs, atol=1e-5 * abs(outputs).max())
    np.testing.assert_allclose(tab.evaluate("attention(0, 1, 1)")[-1], weights[1, 1, -1], atol=1e-5)
    select.select_option("")
    assert tab.locator("#live-mark").is_hidden()
    other = visit(pair[1], "#rule0=entmax")  # an address of another page
    assert "'entmax' was not put into this page; there is: softmax, average" in other.inner_text("#live-error")
    assert other.locator("#live-mark").is_hidden()


def test_the_sentences_on_top_follow_the_prompt(tab, pair, model):
    stored = [tab.inner_text("#intro"), tab.inner_text("#finding")]
    assert "the truth is False" in stored[1]
    press(tab, "1, 1, -2, -1, 3, -1, -20")
    assert tab.inner_text("#intro").startswith("The prompt reads 1 True −2 False 3 False −20. ")
    weights, outputs = watched(model, [1.0, 1, -2, -1, 3, -1, -20])
    finding = tab.inner_text("#finding")
    assert finding.startswith(f"At x₄ = −20 softmax answers {outputs[-1] > 0} (logit ")
    assert "truth" not in finding
    means = abs(weights[:, :, -1]).mean((0, 1))
    key = ["x₁ = 1", "y₁ = True", "x₂ = −2", "y₂ = False", "x₃ = 3", "y₃ = False", "x₄ = −20"][means.argmax()]
    assert f"on {key} in softmax (" in finding
    tab.locator("#live-mark .live-back").click()
    assert [tab.inner_text("#intro"), tab.inner_text("#finding")] == stored
    tab.locator("#live-off").check()  # the same numbers, another model: the truth stays known
    assert "the truth is False" in tab.inner_text("#finding")


def test_the_words_below_each_head_follow_the_prompt(tab, pair, model):
    """By the graph of the same definitions, which the page runs on its own weights."""
    tokens = [1.0, 1, -2, -1, 3, -1, -20, -1, 3.1]
    stored = tab.locator("#grid small").all_inner_texts()
    press(tab, ", ".join(map(str, tokens)))
    weights = torch.tensor(watched(model, tokens)[0])
    maps = Maps(weights, weights, weights, torch.zeros(1, len(tokens), 1))
    found = torch.tensor(patterns.measured(maps, patterns.Compared(tokens, torch.inf), 2))
    shown = torch.tensor(tab.evaluate("patterns[0]"))
    assert torch.allclose(shown, found, atol=1e-4)
    assert tab.locator("#grid small").all_inner_texts() != stored
    assert tab.inner_text("#pattern").startswith("In softmax it ")
    tab.locator("#live-mark .live-back").click()
    assert tab.locator("#grid small").all_inner_texts() == stored


@pytest.mark.exhaustive
def test_a_learned_normalizer_is_kept_or_started_anew(visit, look, write, laboratory, tmp_path, sharp):
    found = look("ssa:n=2.5,b=0.7", means=0, offer="ssa")
    tab = visit(write(found, tmp_path / "page.html"))
    trained, started = (sharp(run_of(found, laboratory), laboratory) for _ in range(2))
    started.swap_rule("ssa")
    tokens = found.asked.prompt.tokens.flatten().tolist()
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), watched(trained, tokens)[1], rtol=1e-5)
    tab.locator("#live-rules select").select_option("ssa")
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), watched(started, tokens)[1], rtol=1e-5)
    assert abs(watched(trained, tokens)[1] - watched(started, tokens)[1]).max() > 1e-4


def test_calm_attention_is_that_of_the_calm_prompt(tab, pair, model):
    calm = pair[0].asked.prompt.tokens.flatten().tolist()
    disturbed = [50.0, *calm[1:]]
    kept = torch.from_numpy(watched(model, calm)[0])
    tab.locator("#live-tokens input").first.fill("50")
    tab.select_option("#live-calm", "all")
    _, wanted = watched(model, disturbed, lambda layer, weights: kept[layer].unsqueeze(0))
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), wanted, atol=1e-5 * abs(wanted).max())
    assert "attention of the stored prompt in all heads" in tab.inner_text("#live-what")
    tab.locator("#grid button").nth(3).click()  # layer 1, head 1
    assert tab.input_value("#live-calm") == "all"
    tab.select_option("#live-calm", "head")

    def one(layer, weights):
        weights = weights.clone()
        if layer == 1:
            weights[:, 1] = kept[1, 1]
        return weights

    weights, wanted = watched(model, disturbed, one)
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), wanted, atol=1e-5 * abs(wanted).max())
    np.testing.assert_allclose(tab.evaluate("attention(0, 1, 1)")[-1], kept[1, 1, -1], atol=1e-5)
    np.testing.assert_allclose(tab.evaluate("attention(0, 1, 0)")[-1], weights[1, 0, -1], atol=1e-5)
    tab.locator("#grid button").first.click()
    assert tab.input_value("#live-calm") == "other"  # another head than the one that is looked at
    tab.locator("#live-more").click()
    assert "no attention for 9" in tab.inner_text("#live-error")
    tab.locator("#live-keep").click()  # the prompt of now is calm: its own attention changes nothing
    tab.select_option("#live-calm", "all")
    mine = tab.evaluate("outputs(0)")
    np.testing.assert_allclose(mine, watched(model, disturbed)[1], atol=1e-5 * max(map(abs, mine)))


def test_heads_are_turned_off_by_the_one_that_is_looked_at(tab, pair, model):
    tokens = pair[0].asked.prompt.tokens.flatten().tolist()
    tab.locator("#grid button").nth(1).click()
    assert tab.inner_text("#live-off-head") == "head 0.1 off"
    tab.locator("#live-off").check()
    with torch.no_grad():
        model.blocks[0].attention.project.weight[:, 8:] = 0
    np.testing.assert_allclose(tab.evaluate("outputs(0)"), watched(model, tokens)[1], rtol=1e-4, atol=1e-6)
    assert tab.locator("#grid button.off").count() == 2  # of both runs
    tab.locator("#grid button").first.click()
    assert not tab.locator("#live-off").is_checked()
    assert "head 0.1 off" in tab.inner_text("#live-what")


def test_the_address_keeps_everything(visit, pair, tab):
    press(tab, "4, 1, -2, 1, 0.5, 1, 2")
    tab.locator("#live-keep").click()
    press(tab, "4, 1, -2, 1, 0.5")
    tab.locator("#live-rules select").nth(1).select_option("ssmax")
    tab.locator("#live-off").check()
    tab.select_option("#live-calm", "layer")
    slide(tab, 0.5, release="")
    again = visit(pair[1], tab.evaluate("location.hash"))
    asked = "[location.hash, outputs(0), outputs(1), attention(1, 1, 0), $('live-what').textContent]"
    assert again.evaluate(asked) == tab.evaluate(asked)
    assert again.inner_text("#live-what").count(";") == 5


@pytest.mark.exhaustive
def test_an_address_that_makes_no_sense_shows_the_stored_page(visit, pair):
    for hash in ("tokens=x,2", "tokens=", "times=-1", "rule0=nonsense", "off=9.9,a", "calm=7", "from=1,b", "times=inf"):
        tab = visit(pair[1], f"#{hash}")
        assert tab.locator("#live-mark").is_hidden(), hash
        assert tab.locator("#grid button").count() == 8


def test_a_change_of_numbers_leaves_the_means(tab):
    tab.select_option("#axis", "length")
    tab.locator("#live-off").check()
    assert "means over other prompts, as stored" in tab.inner_text("#live-what")
    tab.locator("#live-tokens input").first.fill("2")
    assert tab.input_value("#axis") == "prompt"
    assert "means" not in tab.inner_text("#live-what")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
@pytest.mark.exhaustive
def test_a_changed_page_fits(visit, pair, width, scheme):
    tab = visit(pair[1], "#tokens=1,1,-2,-1,3,-1,700&rule0=lssa%2Breweight%3Ap%3D15&off=0.0", color_scheme=scheme)
    tab.set_viewport_size({"width": width, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.locator("#live-mark").is_visible()


@pytest.mark.exhaustive
def test_only_the_shown_part_is_shown_of_what_is_computed(visit, look, write, laboratory, tmp_path, sharp):
    found = look("ssa", means=0, layers="1", heads="1", last=3, offer="")
    tab = visit(write(found, tmp_path / "page.html"))
    tokens = [1.0, 1, -2, -1, 3, -1, 70, 1, 5]
    press(tab, ", ".join(map(str, tokens)))
    model = sharp(run_of(found, laboratory), laboratory)
    rows = tab.evaluate("attention(0, 0, 0)")
    assert [len(row) for row in rows] == [7, 8, 9]
    np.testing.assert_allclose(rows[2], watched(model, tokens)[0][1, 1, -1], atol=1e-5)
    tab.locator("#live-off").check()
    assert "head 1.1 off" in tab.inner_text("#live-what")


@pytest.mark.exhaustive
def test_tokens_that_are_no_numbers_are_not_typed(visit, look, write, tmp_path):
    found = look("softmax", task="needle", text="random:length=12", means=0, offer="average")
    tab = visit(write(found, tmp_path / "page.html"))
    assert all(tab.locator(f"#live-{part}").is_hidden() for part in ("tokens", "editing", "calm", "keep"))
    assert "no single numbers" in tab.inner_text("#live-about")
    tab.locator("#live-rules select").select_option("average")
    row, known = answers(tab)[0], found.runs[0].answers[0]
    assert (row[1], row[2].isalpha(), row[3]) == (known.truth, True, known.answer)


def test_what_is_exported_is_what_is_shown(tab, download):
    tab.locator("#live-tokens input").first.fill("-9")
    lines = download(tab, "csv")[1].decode().splitlines()
    assert '"x₁ = −9"' in lines[1]
    assert lines[1].startswith('"softmax (recomputed)"')
    assert tab.evaluate(words_of_map(1))[0] == "ssa, layer 0, head 0 (recomputed)"
    shown = tab.evaluate("attention(0, 0, 0)")
    assert float(lines[2].split(",")[7]) == pytest.approx(shown[1][0], rel=1e-6)
