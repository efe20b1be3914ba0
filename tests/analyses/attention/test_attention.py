"""Attention maps: prompts as they are typed, what a page may hold, and that what is shown is what was used."""

import base64
import csv
import gzip
import hashlib
import html
import io
import json
import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses.attention import page, prompt, report, study
from icl_lab.analyses.attention.maps import maps
from icl_lab.errors import BadValue, UnknownName, UnknownOption
from icl_lab.normalizers.base import causal
from icl_lab.rng import stream
from icl_lab.runs.spec import resolve
from icl_lab.sweep import load_or_train
from icl_lab.tasks.base import Mark

CPU = torch.device("cpu")
EVERY = resolve("every", "softmax", "smoke")
LINEAR = resolve("linear", "softmax", "smoke")


def runs_of(tiny, lab, *rules, task="every", settings=()):
    return [lab.store.run(tiny(task, rule, "train.steps=4", *settings), 0) for rule in rules]


def sharp(run, lab):
    """The model of a run with scores large enough that sparse rules give zeros."""
    model = load_or_train(run, lab)
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight *= 30
    return model


def found_of(tiny, lab, *rules, text="1,-2,3,70", task="every", means=0, settings=(), **window):
    runs = runs_of(tiny, lab, *rules, task=task, settings=settings)
    asked = prompt.read(text, runs[0].spec)
    return study.look(runs, lab, asked, study.window(runs, asked, **window), means)


def test_the_prompt_of_figure_2_reads_as_in_the_paper():
    asked = prompt.read("1,-2,3,70", EVERY)
    assert asked.prompt.tokens[0, :, 0].tolist() == [1, 1, -2, -1, 3, -1, 70]
    assert asked.prompt.targets[0, ::2].tolist() == [1, 0, 0, 0]
    marks = tasks.build("every").marks(asked.prompt)
    assert [mark.text for mark in marks] == ["1", "True", "−2", "False", "3", "False", "70"]
    assert [mark.label for mark in marks][::3] == ["x₁ = 1", "y₂ = False", "x₄ = 70"]
    assert Mark("x", 12, "0.5").label == "x₁₂ = 0.5"


def test_the_other_quantifier_and_hidden_labels():
    some = prompt.read("-1,-2,3,-70", resolve("some", "softmax", "smoke"))
    assert some.prompt.targets[0, ::2].tolist() == [0, 0, 1, 1]
    hidden = tasks.build("every:labels=hidden")
    asked = prompt.read("1,-2", resolve("every:labels=hidden", "softmax", "smoke")).prompt
    assert asked.tokens[0, :, 0].tolist() == [1, 0, -2]
    assert [(mark.text, mark.quiet) for mark in hidden.marks(prompt)][1] == ("hidden", True)


def test_a_function_is_typed_or_drawn_by_address_and_said():
    typed = prompt.read("100,-1.09,0.78", LINEAR, "2,1")
    assert typed.prompt.tokens[0, :, 0].tolist() == pytest.approx([100, 201, -1.09, -1.18, 0.78])
    assert typed.prompt.targets[0, -1].item() == pytest.approx(2.56)
    assert "a = 2, b = 1 (typed)" in typed.origin
    drawn, again = (prompt.read("1,0", LINEAR) for _ in range(2))
    assert torch.equal(drawn.prompt.tokens, again.prompt.tokens)
    y1, y0 = drawn.prompt.tokens[0, 1, 0].item(), drawn.prompt.targets[0, -1].item()
    a, b = (float(word.replace("−", "-")) for word in re.findall(r"= (\S+?)[, ]", drawn.origin))
    assert (y1 - y0, y0) == pytest.approx((a, b), abs=1e-3)


def test_random_prompts_have_an_address_and_shifts_stretch_them():
    plain, wide, other = (prompt.read(text, EVERY) for text in ("random", "random:sigma=10", "random:sigma=10,seed=1"))
    assert torch.allclose(wide.prompt.tokens[:, ::2], 10 * plain.prompt.tokens[:, ::2])
    assert not torch.equal(wide.prompt.tokens, other.prompt.tokens)
    assert "seed 1: sigma 10, length 20" in other.origin
    assert plain.prompt.tokens.shape[1] == 2 * 20 - 1  # up to the last question
    assert prompt.read("random:length=7", EVERY).length == 7
    assert plain.shift == {}
    assert wide.shift == {"sigma": 10}


def test_needles_are_spelled_out():
    spec = resolve("needle:alphabet=4,keys=2", "softmax", "smoke")
    task = tasks.build(spec.task)
    asked = prompt.read("random:length=12,depth=50", spec)
    marks = task.marks(asked.prompt)
    place = int(task.values(asked.prompt)[0, 0])
    assert [(mark.role, mark.quiet) for mark in marks[place - 1 : place + 1]] == [("key", False), ("needle", False)]
    assert [mark.role for mark in marks[-2:]] == ["query", "query"]
    assert marks[-2].text == "?"
    assert marks[-1].text == marks[place - 1].text
    assert marks[0].quiet
    right = task.references()["exact-rule"](asked.prompt)
    (answer,) = task.answered(right, asked.prompt)
    assert answer.answer == answer.truth == marks[place].text
    assert answer.error == 0


def test_vectors_have_roles_and_no_text():
    spec = resolve("needle-vectors:dim=4", "softmax", "smoke")
    asked = prompt.read("random:length=6,depth=1e-9", spec)
    marks = tasks.build(spec.task).marks(asked.prompt)
    assert [mark.role for mark in marks] == ["key", "needle", *["key", "value"] * 4, "query"]
    assert marks[1].label == "needle₁"


@pytest.mark.parametrize(
    ("text", "task", "function", "complaint"),
    [
        ("", "every", "", "a prompt is a list of numbers such as 1,-2,3,70, or random:sigma=10; got none"),
        ("1,two,3", "every", "", "or random:sigma=10; got 'two'"),
        ("1,,3", "every", "", "got ''"),
        ("1,nan", "every", "", "got 'nan'"),
        ("1,1e39", "every", "", "not finite in single precision"),
        ("1e20,1", "linear", "1e20,0", "not finite in single precision"),
        (",".join(["1"] * 300), "every", "", "too long: 300 examples are 600 tokens, and 'learned' has 512 places"),
        ("random:length=300", "every", "", "too long: 300 examples"),
        ("random:sigma=-1", "every", "", "sigma must be > 0, got -1"),
        ("random:sigma=big", "every", "", "sigma is a finite number; got 'big'"),
        ("random:length=2.5", "every", "", "length is a whole number from 1 on"),
        ("random:sigma", "every", "", "not of the form NAME"),
        ("random", "linear", "1,0", "random draws its own"),
        ("1,2", "every", "1,0", "every has no function to choose"),
        ("1,2", "linear", "1", "2 numbers (a, b), got '1'"),
        ("1,2", "linear", "1,x", "got 'x'"),
        ("1,2", "needle", "", "reads no list of numbers; take random"),
    ],
)
def test_prompts_that_cannot_be_read(text, task, function, complaint):
    with pytest.raises(BadValue, match=re.escape(complaint)):
        prompt.read(text, resolve(task, "softmax", "smoke"), function)


def test_an_axis_that_does_not_exist_is_said_with_those_that_do():
    with pytest.raises(UnknownOption, match=r"no option 'sgima'. Did you mean 'sigma'\? It takes: sigma, length, seed"):
        prompt.read("random:sgima=3", EVERY)


def test_a_prompt_that_no_memory_holds_is_refused():
    endless = resolve("every", "softmax", "smoke", ["model.positions=none"])
    with pytest.raises(BadValue, match="maps of 40000 tokens need about 60 GB a layer"):
        prompt.read("random:length=20000", endless)


def test_folder_names_tell_prompts_apart():
    def slug(text):
        return prompt.Asked(text, None, 1, "", {}).slug

    assert slug("1,-2,3,70") == "1,-2,3,70"
    assert slug("random:sigma=10") == "random-sigma=10"
    long = [",".join(["1"] * 50 + [last]) for last in ("2", "3")]
    assert slug(long[0]) != slug(long[1])
    assert all(len(slug(text)) <= 48 for text in long)
    assert "/" not in slug("../../1")


def test_what_a_page_cannot_show_is_said_before_anything_is_trained(tiny, lab):
    runs = runs_of(tiny, lab, "softmax", "ssa", "ssmax")
    asked = prompt.read("1,-2,3,70", runs[0].spec)
    for words, complaint in (
        ({"layers": "1"}, "no layer '1': layers are counted from 0 to 0"),
        ({"heads": "0,-1"}, "no head '-1': heads are counted from 0 to 1"),
        ({"heads": "first"}, "no head 'first'"),
    ):
        with pytest.raises(BadValue, match=complaint):
            study.window(runs[:1], asked, **words)
    with pytest.raises(BadValue, match="one run, or two side by side, got 3"):
        study.window(runs, asked)
    wider = runs_of(tiny, lab, "ssa", settings=["model.heads=4"])
    with pytest.raises(BadValue, match="same layers x heads, got 1 x 2 and 1 x 4"):
        study.window([runs[0], *wider], asked)
    other = runs_of(tiny, lab, "ssa", task="some")
    with pytest.raises(BadValue, match="read one prompt, got the tasks every and some"):
        study.window([runs[0], *other], asked)
    blind = runs_of(tiny, lab, "softmax", settings=["model.attention=no"])
    with pytest.raises(BadValue, match="model without attention"):
        study.window(blind, asked)
    far = prompt.read("random:length=1000", resolve("every", "softmax", "smoke", ["model.positions=none"]))
    with pytest.raises(BadValue, match="too long: 1000 examples"):  # the other run has a learned code
        study.window([*runs_of(tiny, lab, "ssa", settings=["model.positions=none"]), runs[0]], far)
    assert not lab.store.root.exists()


def test_too_many_cells_are_refused_with_a_hint_that_helps(tiny, lab):
    (run,) = runs_of(tiny, lab, "softmax", settings=["model.positions=none"])
    asked = prompt.read("random:length=800", run.spec)
    with pytest.raises(BadValue, match=r"5,113,602 cells .* 4,000,000 .* --layers 0 or --heads 0,1 .* --last 32"):
        study.window([run], asked)
    assert study.window([run], asked, heads="1").cells(1599) == 1599**2
    assert study.window([run], asked, last=32).cells(1599) == 2 * 32 * 1599
    assert not lab.store.root.exists()


def test_means_that_do_not_fit_are_left_out_and_said(tiny, lab, monkeypatch):
    monkeypatch.setattr(study, "CELLS", 3000)
    found = found_of(tiny, lab, "softmax", means=2)
    assert {frame.axis for frame in found.frames} == {"prompt", "sigma"}  # the long ones are too much
    monkeypatch.setattr(study, "CELLS", 100)
    found = found_of(tiny, lab, "softmax", means=2)
    assert [frame.axis for frame in found.frames] == ["prompt"]
    assert "left out" in found.notes[-1]


def unpacked(part, rows, t):
    """Reads back what the page holds: (l h r t), hidden cells NaN."""
    kind = {"f4": "<f4", "u2": "<u2", "u1": "u1"}[part["type"]]
    flat = np.frombuffer(base64.b64decode(part["bytes"]), kind).astype(float)
    if part["type"] != "f4":
        flat = part["low"] + part["step"] * flat
    visible = np.tri(rows, t, t - rows, dtype=bool)
    whole = np.full((len(flat) // visible.sum(), rows, t), np.nan)
    whole[:, visible] = flat.reshape(len(whole), -1)
    return whole


def used(model, prompt, layer=0):
    """The values (h t d) of a layer and what its attention makes of them (h t d), taken from inside the model."""
    caught = {}
    part = model.blocks[layer].attention
    attend = part.rule.attend

    def catch(q, k, v, visible):
        caught["v"], caught["o"] = v, attend(q, k, v, visible)
        return caught["o"]

    part.rule.attend = catch
    with torch.no_grad():
        model(prompt.tokens)
    part.rule.attend = attend
    return caught["v"][0].double().numpy(), caught["o"][0].double().numpy()


@pytest.mark.parametrize("rule", ["softmax", "ssa", "raw", "sparsemax", "stick-breaking"])
def test_attention_shown_is_attention_used(tiny, lab, rule):
    """The numbers in the page, times the values, are what the layer hands on."""
    found = found_of(tiny, lab, rule, text="1,-2,3,70,-4,0.5")
    held = page.data(found)["frames"][0]["runs"][0]
    weights = np.nan_to_num(unpacked(held["weights"], 11, 11))
    v, o = used(load_or_train(found.runs[0].run, lab), found.asked.prompt)
    np.testing.assert_allclose(weights @ v, o, atol=1e-5 * np.abs(o).max())


def test_a_window_shows_the_same_numbers_as_the_whole(tiny, lab):
    settings = ["model.layers=2"]
    whole = found_of(tiny, lab, "ssa", settings=settings).frames[0].maps[0]
    part = found_of(tiny, lab, "ssa", settings=settings, layers="1", heads="1", last=3).frames[0].maps[0]
    assert part.first == 4
    assert torch.equal(part.weights, whole.weights[1:, 1:, 4:])
    assert torch.equal(part.scores, whole.scores[1:, 1:, 4:])
    assert part.weights.shape == (1, 1, 3, 7)


def test_means_and_their_spread_are_those_of_the_single_prompts(tiny, lab, monkeypatch):
    (run,) = runs_of(tiny, lab, "ssa")
    model, task = load_or_train(run, lab), tasks.build("every")
    prompt = task.sample(stream(0, "x"), 6, 5)
    monkeypatch.setattr("icl_lab.runs.measure.MEMORY", 2 * 4 * model.bytes_a_prompt(10))  # 4 prompts at once, then 2
    mean = maps(model, prompt, [0], [0, 1], 10, CPU)
    single = [maps(model, task.sample(stream(0, "x"), 6, 5).take(n + 1), [0], [0, 1], 10, CPU) for n in range(6)]
    running = torch.stack([each.weights for each in single])  # the mean over the first n + 1
    each = torch.diff(
        torch.cat((torch.zeros_like(running[:1]), running * torch.arange(1, 7).view(-1, 1, 1, 1, 1))), dim=0
    )
    assert torch.allclose(mean.weights, each.mean(0), atol=1e-6)
    assert torch.allclose(mean.spread, each.std(0, correction=0), atol=1e-4)
    visible = causal(10)
    assert (mean.weights[..., ~visible] == 0).all()
    assert mean.outputs.shape == (6, 10, 1)
    assert (single[0].spread.abs() < 1e-3).all()


def test_frames_of_means_lie_along_sigma_and_length(tiny, lab):
    found = found_of(tiny, lab, "softmax", "ssa", means=3)
    places = [(frame.axis, frame.value) for frame in found.frames]
    assert places[0] == ("prompt", 0)
    assert [value for axis, value in places if axis == "sigma"] == [1, 3, 10, 30]
    assert [value for axis, value in places if axis == "length"] == [10, 20, 40]
    for frame in found.frames[1:]:
        length = 4 if frame.axis == "sigma" else int(frame.value)
        assert len(frame.marks) == 2 * length - 1
        assert [each.weights.shape[2:] for each in frame.maps] == [(2 * length - 1,) * 2] * 2
        assert all(mark.text == "" and mark.value is None for mark in frame.marks)
        assert torch.allclose(frame.maps[1].weights.sum(-1), torch.tensor(1.0), atol=1e-5)
    training, wide = (next(f for f in found.frames if (f.axis, f.value) == ("sigma", s)) for s in (1, 30))
    assert not torch.allclose(training.maps[0].weights, wide.maps[0].weights)


def test_rounded_means_keep_their_zeros_and_three_digits(tiny, lab, monkeypatch):
    monkeypatch.setattr(study, "load_or_train", sharp)
    found = found_of(tiny, lab, "sparsemax", means=2)
    frame = next(f for f in found.frames if f.axis == "length")
    held, rows = page.data(found)["frames"][found.frames.index(frame)]["runs"][0], len(frame.marks)
    back, true = unpacked(held["weights"], rows, rows), frame.maps[0].weights[0].double().numpy()
    seen = ~np.isnan(back)
    assert (true[seen] == 0).any()
    np.testing.assert_array_equal(back[seen] == 0, true[seen] == 0)
    np.testing.assert_allclose(back[seen], true[seen], atol=1.1 / 65535)
    np.testing.assert_allclose(
        unpacked(held["spread"], rows, rows)[seen], frame.maps[0].spread[0].numpy()[seen], atol=1.1 / 255
    )


def test_what_is_small_is_not_rounded_to_exactly_nothing():
    small = np.array([0.0, 1e-9, 0.5, 1.0], dtype="<f4")
    held = page._levels(small, "<u2")
    assert list(np.frombuffer(base64.b64decode(held["bytes"]), "<u2")) == [0, 1, 32768, 65535]
    below = page._levels(np.array([-1.0, 0.0, 1.0], dtype="<f4"), "<u1")
    assert (below["low"], below["step"]) == (-1, pytest.approx(2 / 255))


def test_the_training_range_follows_the_training_law():
    linear, every = tasks.build("linear"), tasks.build("every")
    x = torch.randn(100_000, generator=stream(0, "range"))
    assert (x.abs() < every.reach()["x"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert every.reach(sigma=10)["x"] == 10 * every.reach()["x"]
    prompt = linear.sample(stream(0, "range"), 100_000, 1)
    assert (prompt.tokens[:, 1].abs() < linear.reach()["y"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert set(linear.reach(sigma_x=3)) == {"x"}
    assert tasks.build("needle").reach() == {}


def test_answers_stand_beside_the_truth(tiny, lab):
    found = found_of(tiny, lab, "softmax", "ssa")
    head, rows = report.answers_table(found)
    assert head == ["token", "truth", "softmax", "softmax: error", "ssa", "ssa: error"]
    assert [row[:2] for row in rows] == [
        ["x₁ = 1", "True"], ["x₂ = −2", "False"], ["x₃ = 3", "False"], ["x₄ = 70", "False"],
    ]  # fmt: skip
    for shown, column in zip(found.runs, (2, 4), strict=True):
        logits = found.frames[0].maps[found.runs.index(shown)].outputs[0, ::2, 0]
        assert [row[column].startswith("True") for row in rows] == [bool(z > 0) for z in logits]
        wrong = [str(int((z > 0) != (row[1] == "True"))) for z, row in zip(logits, rows, strict=True)]
        assert [row[column + 1] for row in rows] == wrong


def test_files_hold_the_numbers_and_no_date(tiny, lab):
    found = found_of(tiny, lab, "softmax", "ssa", text="random:length=6")
    folder = lab.store.root / "maps"
    text, files = report.publish(found, "the page", folder, "icl-lab attention")
    assert set(files) == {
        "attention.html", "weights.csv", "answers.csv", "table.md", "attention.png", "attention.svg", "attention.pdf",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((folder / "weights.csv").read_text())))
    assert len(rows) == 2 * 2 * (11 * 12 // 2)
    one = [row for row in rows if (row["attn"], row["layer"], row["head"], row["query"]) == ("ssa", "0", "1", "10")]
    assert [float(row["weight"]) for row in one] == pytest.approx(found.frames[0].maps[1].weights[0, 1, 10].tolist())
    assert one[3]["key_token"] == found.frames[0].marks[3].label
    assert "| ssa | 0.1 |" in text
    drawn = (folder / "attention.pdf").read_bytes()
    assert drawn[:4] == b"%PDF"
    assert b"CreationDate" not in drawn


def test_a_long_table_of_weights_is_compressed(tiny, lab, monkeypatch):
    found = found_of(tiny, lab, "softmax", text="1,-2")
    monkeypatch.setattr(report, "figure", lambda found: Figure())
    monkeypatch.setattr(report, "LONG", 100)
    _, files = report.publish(found, "the page", lab.store.root / "maps", "icl-lab attention")
    assert "weights.csv" not in files
    packed = (lab.store.root / "maps" / "weights.csv.gz").read_bytes()
    assert gzip.decompress(packed).decode() == report.weights_csv(found)
    assert packed[4:8] == b"\0\0\0\0"  # no time


def test_the_figure_hatches_what_is_hidden_and_dots_what_is_0(tiny, lab, monkeypatch):
    monkeypatch.setattr(study, "load_or_train", sharp)
    found = found_of(tiny, lab, "sparsemax", "softmax", text="5,-9,30,-70,40")
    figure = report.figure(found)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * 1 * 2
    shown = panels[0].images[0].get_array()
    hidden = np.triu(np.ones((9, 9), dtype=bool), 1)
    np.testing.assert_array_equal(np.ma.getmaskarray(np.ma.masked_invalid(shown)), hidden)
    zeros = ((found.frames[0].maps[0].weights[0, 0].numpy() == 0) & ~hidden).sum()
    assert sum(len(dots.get_offsets()) for dots in panels[0].collections) == zeros > 0
    assert [tick.get_text() for tick in panels[0].get_yticklabels()][-1] == "x₅ = 40"
    assert panels[3].get_title() == "softmax, layer 0, head 1"


def test_two_seeds_of_a_rule_are_told_apart(tiny, lab):
    spec = tiny("every", "ssa", "train.steps=4")
    runs = [lab.store.run(spec, seed) for seed in (0, 1)]
    asked = prompt.read("1,-2", spec)
    found = study.look(runs, lab, asked, study.window(runs, asked), 0)
    assert [shown.name for shown in found.runs] == ["ssa seed 0", "ssa seed 1"]
    assert study.folder_name(runs, asked) == "attention-every-smoke-ssa-ssa-seed-1-1,-2"
    assert found.runs[0].sha != found.runs[1].sha


def test_the_foot_of_the_page_says_where_it_comes_from(tiny, lab):
    found = found_of(tiny, lab, "ssa")
    made = page.page(found, "icl-lab attention --prompt 1,-2,3,70", "Made on a machine.").html
    run = found.runs[0].run
    weights = (run.folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() in made
    for words in (
        f"smoke-{run.spec.hash} / seed 0",
        "n, layer 0",
        "b, layer 0",
        "typed",
        "icl_lab 0.",
        "Made on a machine.",
    ):
        assert words in page
    n = load_or_train(run, lab).blocks[0].attention.rule.n.tolist()
    assert f"{n[0]:.4g}, {n[1]:.4g}" in page


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_hostile_words_stay_words(tiny, lab, monkeypatch):
    found = found_of(tiny, lab, "ssa")
    object.__setattr__(found.runs[0], "name", HOSTILE)
    object.__setattr__(found.asked, "origin", HOSTILE)
    found.frames[0].marks[0] = Mark(HOSTILE, 1, HOSTILE, 1.0)
    text = page.page(found, HOSTILE, HOSTILE).html
    assert text.count("<script") == 2  # the data, and the page's own
    assert "<img" not in text
    held = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert held["runs"] == [HOSTILE]
    assert held["frames"][0]["tokens"][0]["text"] == HOSTILE


def test_a_notebook_shows_the_page_in_a_frame(tiny, lab):
    made = page.page(found_of(tiny, lab, "ssa"), "icl-lab attention", "here")
    frame = made._repr_html_()
    inside = re.fullmatch(r'<iframe [^>]*height:1100px[^>]* srcdoc="([^"]*)"></iframe>', frame, re.DOTALL)
    assert html.unescape(inside[1]) == made.html


def test_a_run_that_does_not_exist_is_named_with_the_nearest(tiny, lab):
    (run,) = runs_of(tiny, lab, "ssa")
    load_or_train(run, lab)
    wrong = str(run.folder).replace("ssa", "sas")
    with pytest.raises(UnknownName, match=f"Did you mean '{re.escape(str(run.folder))}'"):
        lab.store.at(type(run.folder)(wrong))
