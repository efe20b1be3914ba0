"""Prompts as they are typed or drawn, those that are refused, and what of the models a page shows."""

import re

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.attention import prompt
from icl_lab.base.errors import BadValue, UnknownOption
from icl_lab.runs.spec import resolve
from icl_lab.tasks import wording
from icl_lab.tasks.base import Mark

EVERY = resolve("every", "softmax", "smoke")
LINEAR = resolve("linear", "softmax", "smoke")


def test_prompt_of_figure_2_reads_as_in_the_paper():
    asked = prompt.read("1,-2,3,70", EVERY)
    assert asked.prompt.tokens[0, :, 0].tolist() == [1, 1, -2, -1, 3, -1, 70]
    assert asked.prompt.targets[0, ::2].tolist() == [1, 0, 0, 0]
    marks = wording.marks(tasks.build("every"), asked.prompt)
    assert [mark.text for mark in marks] == ["1", "True", "−2", "False", "3", "False", "70"]
    assert [mark.label for mark in marks][::3] == ["x₁ = 1", "y₂ = False", "x₄ = 70"]
    assert Mark("x", 12, "0.5").label == "x₁₂ = 0.5"


def test_labels_of_other_quantifier_and_hidden_labels():
    some = prompt.read("-1,-2,3,-70", resolve("some", "softmax", "smoke"))
    assert some.prompt.targets[0, ::2].tolist() == [0, 0, 1, 1]
    hidden = tasks.build("every:labels=hidden")
    asked = prompt.read("1,-2", resolve("every:labels=hidden", "softmax", "smoke")).prompt
    assert asked.tokens[0, :, 0].tolist() == [1, 0, -2]
    assert [(mark.text, mark.quiet) for mark in hidden.marks(asked)][1] == ("hidden", True)


def test_function_is_typed_or_drawn_by_address():
    typed = prompt.read("100,-1.09,0.78", LINEAR, "2,1")
    assert typed.prompt.tokens[0, :, 0].tolist() == pytest.approx([100, 201, -1.09, -1.18, 0.78])
    assert typed.prompt.targets[0, -1].item() == pytest.approx(2.56)
    assert "a = 2, b = 1 (typed)" in typed.origin
    drawn, again = (prompt.read("1,0", LINEAR) for _ in range(2))
    assert torch.equal(drawn.prompt.tokens, again.prompt.tokens)
    y1, y0 = drawn.prompt.tokens[0, 1, 0].item(), drawn.prompt.targets[0, -1].item()
    a, b = (float(word.replace("−", "-")) for word in re.findall(r"= (\S+?)[, ]", drawn.origin))
    assert (y1 - y0, y0) == pytest.approx((a, b), abs=1e-3)


def test_shifts_stretch_random_prompts():
    plain, wide, other = (prompt.read(text, EVERY) for text in ("random", "random:sigma=10", "random:sigma=10,seed=1"))
    assert torch.allclose(wide.prompt.tokens[:, ::2], 10 * plain.prompt.tokens[:, ::2])
    assert not torch.equal(wide.prompt.tokens, other.prompt.tokens)
    assert "seed 1: sigma 10, length 20" in other.origin
    assert plain.prompt.tokens.shape[1] == 2 * 20 - 1  # up to the last question
    assert prompt.read("random:length=7", EVERY).length == 7
    assert plain.shift == {}
    assert wide.shift == {"sigma": 10}


def test_needle_prompts_are_put_into_words():
    spec = resolve("needle:alphabet=4,keys=2", "softmax", "smoke")
    task = tasks.build(spec.task)
    asked = prompt.read("random:length=12,depth=50", spec)
    marks = wording.marks(task, asked.prompt)
    place = int(task.value_places(asked.prompt)[0, 0])
    assert [(mark.role, mark.quiet) for mark in marks[place - 1 : place + 1]] == [("key", False), ("needle", False)]
    assert [mark.role for mark in marks[-2:]] == ["query", "query"]
    assert marks[-2].text == "?"
    assert marks[-1].text == marks[place - 1].text
    assert marks[0].quiet
    right = task.references()["exact-rule"](asked.prompt)
    (answer,) = wording.answered(task, right, asked.prompt)
    assert answer.answer == answer.truth == marks[place].text
    assert answer.error == 0


def test_vectors_have_roles_and_no_text():
    spec = resolve("needle-vectors:dim=4", "softmax", "smoke")
    asked = prompt.read("random:length=6,depth=1e-9", spec)
    marks = wording.marks(tasks.build(spec.task), asked.prompt)
    assert [mark.role for mark in marks] == ["key", "needle", *["key", "value"] * 4, "query"]
    assert marks[1].label == "needle₁"


@pytest.mark.parametrize(
    ("text", "task", "function", "complaint"),
    [
        ("", "every", "", "a prompt is a list of numbers such as 1,-2,3,70, or random:sigma=10; got none"),
        ("1,two,3", "every", "", "or random:sigma=10; got 'two'"),
        ("1,,3", "every", "", "got ''"),
        ("1,nan", "every", "", "got 'nan'"),
        ("1,1e39", "every", "", "as large as inf; their squares are only finite in single precision up to 1e+15"),
        ("1e30,1e30", "linear", "", "as large as 1e+30"),
        ("1e10,1", "linear", "1e20,0", "as large as 1e+30"),
        ("1,1e10", "linear", "1e20,0", "as large as 1e+30"),  # a label that is asked for
        ("random:sigma=1e30", "every", "", "only finite in single precision"),
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
        ("1,2", "needle", "", "needle has no prompt of typed numbers, only random ones"),
    ],
)
def test_bad_prompts_are_refused(text, task, function, complaint):
    with pytest.raises(BadValue, match=re.escape(complaint)):
        prompt.read(text, resolve(task, "softmax", "smoke"), function)


def test_unknown_axis_is_named_with_those_that_exist():
    with pytest.raises(UnknownOption, match=r"no option 'sgima'. Did you mean 'sigma'\? It takes: sigma, length, seed"):
        prompt.read("random:sgima=3", EVERY)


def test_prompt_beyond_memory_is_refused():
    endless = resolve("every", "softmax", "smoke", ["model.positions=none"])
    with pytest.raises(BadValue, match="maps of 40000 tokens need about 60 GB a layer"):
        prompt.read("random:length=20000", endless)


def test_slugs_tell_prompts_apart():
    def slug(text):
        return prompt.Asked(text, None, 1, "", {}).slug

    assert slug("1,-2,3,70") == "1,-2,3,70"
    assert slug("random:sigma=10") == "random-sigma=10"
    long = [",".join(["1"] * 50 + [last]) for last in ("2", "3")]
    assert slug(long[0]) != slug(long[1])
    assert all(len(slug(text)) <= 48 for text in long)
    assert "/" not in slug("../../1")


def test_long_prompts_are_cut_for_a_line():
    assert prompt.Asked("1,2", None, 2, "", {}).brief == "1,2"
    cut = prompt.Asked(",".join(["1"] * 50), None, 50, "", {}).brief
    assert (len(cut), cut[-1]) == (80, "…")


@pytest.mark.parametrize("method", ["marks", "words"])
def test_tasks_without_words_for_tokens_or_answers_are_refused(monkeypatch, method):
    def refuse(*arguments):
        raise BadValue("a token of this task has no words.")

    monkeypatch.setattr(type(tasks.build("every")), method, refuse)
    with pytest.raises(BadValue, match="has no words"):
        prompt.read("1,2", EVERY)


def test_what_a_page_cannot_show_is_refused(runs_of, lab):
    runs = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2,3,70", runs[0].spec)
    for words, complaint in (
        ({"layers": "1"}, "no layer '1': layers are counted from 0 to 0"),
        ({"heads": "0,-1"}, "no head '-1': heads are counted from 0 to 1"),
        ({"heads": "first"}, "no head 'first'"),
    ):
        with pytest.raises(BadValue, match=complaint):
            prompt.choose(runs[:1], asked, **words)
    wider = runs_of("ssa", settings=["model.heads=4"])
    with pytest.raises(BadValue, match="same layers x heads, got 1 x 2 and 1 x 4"):
        prompt.choose([runs[0], *wider], asked)
    other = runs_of("ssa", task="some")
    with pytest.raises(BadValue, match="read one prompt, got the tasks every and some"):
        prompt.choose([runs[0], *other], asked)
    far = prompt.read("random:length=1000", resolve("every", "softmax", "smoke", ["model.positions=none"]))
    with pytest.raises(BadValue, match="too long: 1000 examples"):  # the other run has a learned code
        prompt.choose([*runs_of("ssa", settings=["model.positions=none"]), runs[0]], far)
    assert not lab.store.root.exists()


def test_too_many_cells_are_refused_with_a_hint(runs_of, lab):
    (run,) = runs_of("softmax", settings=["model.positions=none"])
    asked = prompt.read("random:length=800", run.spec)
    with pytest.raises(BadValue, match=r"5,113,602 cells .* 4,000,000 .* --layers 0 or --heads 0,1 .* --last 32"):
        prompt.choose([run], asked)
    assert prompt.choose([run], asked, heads="1").cells(1599) == 1599**2
    assert prompt.choose([run], asked, last=32).cells(1599) == 2 * 32 * 1599
    assert not lab.store.root.exists()


def test_two_runs_have_half_the_cells_each(runs_of, monkeypatch):
    softmax, ssa = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2", softmax.spec)
    cells = prompt.choose([softmax], asked).cells(3)
    monkeypatch.setattr(prompt, "CELLS", 2 * cells - 1)
    prompt.choose([softmax], asked)
    with pytest.raises(BadValue, match=f"{2 * cells} cells"):
        prompt.choose([softmax, ssa], asked)
