"""The task masked-text: which places are asked, what is read there, its loss by hand, and what it refuses."""

import json
import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.runs.spec import resolve
from icl_lab.tasks.base import Prompt
from tests.texts.test_corpus import tokenizer

MASK = 256


def drawn(task="masked-text", prompts=200, length=100, **shift):
    return tasks.build(task).sample(stream(0, "masked"), prompts, length, **shift)


@pytest.mark.parametrize(
    ("share", "length", "asked"),
    [("15", 100, 15), ("15", 128, 19), ("15", 12, 2), ("40", 10, 4), ("15", 2, 1), ("100", 7, 7)],
)
def test_as_many_places_are_asked_as_its_share_says(share, length, asked):
    prompt = drawn(f"masked-text:share={share}", length=length)
    assert set(prompt.scored.sum(1).tolist()) == {asked}


@pytest.mark.parametrize(("options", "masked", "random"), [(":unmasked=0", 0.9, 0.1), (":random=0,unmasked=0", 1, 0)])
def test_what_is_read_at_asked_places(options, masked, random):
    """Of 30,000 asked places; a token drawn anew is the true one in one of 256, so that its kind is not known then."""
    prompt = drawn(f"masked-text{options}", prompts=2000)
    read, true = prompt.tokens[prompt.scored], prompt.targets[prompt.scored].long()
    hidden, other = (read == MASK).float().mean().item(), ((read != MASK) & (read != true)).float().mean().item()
    assert hidden == pytest.approx(masked, abs=0.012 * (masked < 1))  # five standard deviations
    assert other == pytest.approx(random * 255 / 256, abs=0.009 * (random > 0))
    assert (read == true).float().mean().item() < 3 * random / 256 + 1e-9  # only where it was drawn anew


def test_the_kinds_are_those_of_the_draw():
    """The same draw by hand: the order of one row of numbers says which places are asked, the next row what they read.

    A token of a kind is known from the draw alone, so that no other token, above all not the true one, can stand there.
    """
    task, rng = tasks.build("masked-text"), stream(0, "masked")
    window = task.corpus.windows("train", rng, 200, 99)
    torch.randint(len(task.corpus.everything_seen), (200, 100), generator=rng)
    torch.rand(200, 100, generator=rng)
    order, kind = torch.rand(200, 100, generator=rng), 100 * torch.rand(200, 100, generator=rng)
    words = torch.randint(256, (200, 100), generator=rng)
    prompt = drawn()
    for row in range(200):
        asked = order[row].argsort()[:15].tolist()
        assert sorted(asked) == prompt.scored[row].nonzero().flatten().tolist()
        for t in range(100):
            wanted = int(window[row, t])
            if t in asked:
                wanted = int(words[row, t]) if kind[row, t] < 10 else wanted if kind[row, t] >= 90 else MASK
            assert int(prompt.tokens[row, t]) == wanted
    assert torch.equal(prompt.targets.long(), window)


def test_other_texts_read_the_same_where_they_are_masked():
    """The input at a masked or redrawn place does not hang on the token that stood there."""
    prompt = drawn("masked-text:unmasked=0")
    again = tasks.build("masked-text:unmasked=0,part=held-out").sample(stream(0, "masked"), 200, 100)
    assert not torch.equal(prompt.targets, again.targets)
    assert torch.equal(prompt.scored, again.scored)
    assert torch.equal(prompt.tokens[prompt.scored], again.tokens[again.scored])


def test_loss_and_errors_by_hand():
    """Two asked places with the probabilities 1/2 and 1/8, the second of them wrong; a third that nobody asks."""
    outputs = torch.full((1, 3, 256), -math.inf)
    for place, p in enumerate((0.5, 0.125, 1e-9)):
        outputs[0, place, 7], outputs[0, place, 9] = math.log(p), math.log(1 - p) - (1e-3 if p == 0.5 else 0)
    scored = torch.tensor([[True, True, False]])
    prompt = Prompt(torch.full((1, 3), MASK), torch.full((1, 3), 7.0), scored)
    task = tasks.build("masked-text")
    errors = task.errors(outputs, prompt)
    bits = (errors / math.log(2))[0].tolist()
    assert bits[:2] == pytest.approx([1, 3], abs=1e-3)
    assert math.isnan(bits[2])
    assert task.loss(outputs, prompt).item() == pytest.approx(2 * math.log(2), abs=1e-3)
    assert task.views(errors, prompt)["nats"].item() == pytest.approx(2 * math.log(2), abs=1e-3)
    assert task.confidence(outputs, prompt)["wrong"].item() == 0.5


def test_what_is_not_asked_is_kept_as_in_text():
    whole, damaged = (drawn(kept=kept) for kept in (100.0, 80.0))
    assert torch.equal(whole.scored, damaged.scored)
    assert torch.equal(whole.targets, damaged.targets)
    other = ~whole.scored
    assert torch.equal(whole.tokens[other], whole.targets[other].long())
    assert torch.equal(whole.tokens[whole.scored], damaged.tokens[damaged.scored])
    assert 0.80 < (damaged.tokens == damaged.targets)[other].float().mean().item() < 0.83


def test_both_neighbours_by_hand(tmp_path, monkeypatch):
    """After a always b or c, before d always b: of a, mask, d nothing but b fits; with d hidden both do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abdaceabdace" * 400)
    task = tasks.build("masked-text:file=a.txt")
    rows = torch.tensor([[ord("a"), MASK, ord("d")], [ord("a"), MASK, MASK], [MASK, MASK, MASK]])
    prompt = Prompt(rows, rows.float(), rows == MASK)
    p = task.references()["neighbours"](prompt).exp()
    assert torch.allclose(p.sum(2), torch.ones(3, 3))
    assert p[0, 1, ord("b")] > 0.99
    assert p[1, 1, ord("b")].item() == pytest.approx(0.5, abs=0.01)
    assert p[1, 1, ord("c")].item() == pytest.approx(0.5, abs=0.01)
    assert p[2, 1, ord("a")].item() == pytest.approx(1 / 3, abs=0.01)  # nothing is known: the unigram


def test_models_see_both_sides_unless_told_otherwise():
    assert resolve("masked-text", "softmax", "smoke").model.mask == "full"
    assert resolve("masked-text", "softmax", "smoke", ["model.mask=causal"]).model.mask == "causal"


@pytest.mark.parametrize("name", ["[MASK]", "<mask>", ""])
def test_the_mask_of_a_tokenizer(tmp_path, monkeypatch, run, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab ba " * 20_000)
    tokenizer(tmp_path / "words.json", ["ab", "ba", "a", "b", *[name][: bool(name)]])
    choice = "masked-text:file=a.txt,tokenizer=words.json"
    if name:
        task = tasks.build(choice)
        assert (task.vocabulary, task.outputs, task.corpus.mask) == (5, 5, 4)
        tokens = task.sample(stream(0, "x"), 500, 20)
        assert set(tokens.tokens.unique().tolist()) == {0, 1, 2, 3, 4}
        assert int(tokens.tokens[~tokens.scored].max()) < 4
        return
    code, _, err = run("sweep", "--task", choice, "--attn", "softmax", "--preset", "smoke")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "has no mask token: none is called [MASK] or <mask>" in err
    assert not list(tmp_path.rglob("spec.json"))


def test_the_mask_is_no_word_that_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab ba " * 800)
    tokenizer(tmp_path / "words.json", ["ab", "[MASK]", "ba", "a", "b"])
    choice = "masked-text:file=a.txt,tokenizer=words.json,share=100,random=100,unmasked=0"
    words, often = drawn(choice, prompts=400, length=20).tokens.unique(return_counts=True)
    assert words.tolist() == [0, 2, 3, 4]
    assert (often / 8000 - 0.25).abs().max() < 0.025  # five standard deviations


@pytest.mark.slow
def test_a_masked_model_is_trained_and_not_exported(run, tmp_path, monkeypatch, quick_pictures):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "train.steps=3", "--set", "model.width=8", "--set", "test.axes.length=16"]
    small += ["--set", "train.curriculum.start=16", "--set", "train.curriculum.stop=16", "--set", "model.mask=causal"]
    out, err = run.ok("sweep", "--task", "masked-text", "--attn", "softmax", "--preset", "smoke", *small)
    assert "reference:neighbours" in out
    (path,) = (tmp_path / "results").rglob("env.json")
    assert list(json.loads(path.read_text())["reads"]) == ["pydoc_data.topics"]
    name = f"masked-text/softmax/{path.parents[1].name}"
    _, err = run.refused("export-hf", name, "--to", str(tmp_path / "made"), "--results", str(tmp_path / "results"))
    assert "masked-text fills in masked tokens" in err
