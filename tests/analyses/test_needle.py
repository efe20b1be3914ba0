"""Heads of trained models: the needle score, fading curves, the law of a free factor, and the trade-off."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import law, laws, needles
from icl_lab.analyses.needle import retrieve
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2, ModelSpec, Reading
from icl_lab.rng import stream
from icl_lab.runs.measure import Subject, TestSpec, draw, measure
from icl_lab.sweep import sweep

CPU = torch.device("cpu")


def by_hand(sharp=1e3):
    """A model of ``needle:keys=1`` with one head whose weights are written down, so that its answer is known.

    It reads tokens that carry the one before them in their second half (``with_predecessors``): the question looks for
    the token that stands after the key, and answers with it.
    """
    task = tasks.build("needle:keys=1,alphabet=4")
    model = GPT2(
        ModelSpec(layers=1, heads=1, width=24, positions="none", mlp=False, norm=False),
        Reading(12, 4, 1, 16),
        "softmax",
        stream(0, "init"),
    )
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.read_in.weight[:12, :12] = torch.eye(12)
        attention = model.blocks[0].attention
        # The question (token 5) asks for the key (token 4) as what stood before: query 0 against key 0.
        attention.qkv.weight[0, 5] = sharp
        attention.qkv.weight[24 + 0, 6 + 4] = sharp
        attention.qkv.weight[48 : 48 + 4, :4] = torch.eye(4)  # the value is the token itself
        attention.project.weight[12:16, :4] = torch.eye(4)
        model.read_out.weight[:, 12:16] = torch.eye(4)
    return model.eval(), task


def with_predecessors(prompt):
    """Tokens (b t w) -> (b t 2w): each beside the one before it."""
    before = torch.cat((torch.zeros_like(prompt.tokens[:, :1]), prompt.tokens[:, :-1]), 1)
    return type(prompt)(torch.cat((prompt.tokens, before), 2), prompt.targets, prompt.scored)


def test_a_model_by_hand_finds_every_needle_and_its_head_has_score_1(monkeypatch):
    model, task = by_hand()
    plain = draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {})
    places = task.values(plain)
    monkeypatch.setattr(type(task), "values", lambda self, prompt: places[: len(prompt.tokens)])
    found = retrieve(model, task, with_predecessors(plain), CPU)
    assert found.scores.shape == (64, 1, 1)
    assert found.heads.item() == pytest.approx(1, abs=1e-6)
    assert found.outcomes.tolist() == [2] * 64
    assert found.best.min() > 1 - 1e-6


def test_a_model_that_looks_everywhere_alike_has_the_share_of_a_key_and_scores_chance():
    model, task = by_hand(sharp=0.0)
    plain = draw(task, 40, TestSpec(prompts=1024, axes={"length": [40.0]}), {})
    found = retrieve(model, task, with_predecessors(plain), CPU)
    assert found.heads.item() == pytest.approx(1 / 40, rel=1e-5)
    blind = Subject(lambda prompt: torch.zeros(*prompt.tokens.shape[:2], 4))
    test = TestSpec(prompts=2048, axes={"depth": [50.0], "length": [40.0]})
    error = Grid.of(measure({"blind": blind}, task, test).cells, ["depth", "length"]).at(metric="exact")
    assert error == pytest.approx(3 / 4, abs=0.03)


def test_trials_are_told_apart_by_how_they_end():
    task = tasks.build("needle:answer=2,alphabet=4")
    prompt = draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {}).take(3)
    outputs = torch.zeros(3, 40, 4)
    for row, rights in enumerate([(True, True), (True, False), (False, True)]):
        for place, right in zip((38, 39), rights, strict=True):
            wanted = int(prompt.targets[row, place])
            outputs[row, place, wanted if right else (wanted + 1) % 4] = 1

    class Said(torch.nn.Module):
        def bytes_a_prompt(self, t):
            return 1.0

        def forward(self, tokens, watch):
            watch(0, torch.full((3, 1, 40, 40), 0.01), torch.zeros(3, 1, 40, 40))
            return outputs

    found = retrieve(Said(), task, prompt, CPU)
    assert found.outcomes.tolist() == [2, 1, 0]
    assert found.best.tolist() == pytest.approx([2 / 39] * 3)  # two symbols of 39 keys, whatever the weights sum to


@pytest.mark.parametrize(("true", "made"), [("log n", np.log), ("sqrt n", np.sqrt), ("n", np.positive)])
def test_the_law_that_made_the_numbers_is_found(true, made):
    n = np.arange(1, 65.0)
    noise = 0.01 * np.random.default_rng(0).normal(size=64)
    best, *others = law.fits(0.3 * made(n) + 2 + noise * made(n).std())
    assert best.law == true
    assert (best.slope, best.shift) == pytest.approx((0.3, 2), rel=0.05)
    assert others[0].aic > best.aic + 2
    assert best.at([4.0])[0] == pytest.approx(0.3 * made(4.0) + 2, rel=0.05)


def test_a_constant_is_a_law_and_costs_less():
    flat = law.fits(0.4 + 0.01 * np.random.default_rng(1).normal(size=64))
    assert flat[0].law == "constant"
    residual = 0.01 * np.random.default_rng(1).normal(size=64)
    rss = float(((residual - residual.mean()) ** 2).sum())
    assert flat[0].aic == pytest.approx(64 * math.log(rss / 64) + 4)
    with pytest.raises(BadValue, match="at least five values"):
        law.fits([1, 2, 3])


def trained(tiny, lab, attn="softmax", task="needle:alphabet=4,keys=2", seed=0, **more):
    spec = tiny(task, attn, "test.axes.length=32,48", "test.axes.depth=50", "train.steps=5", *more.get("set", ()))
    sweep(spec, seed, lab)
    return lab.store.run(spec, seed)


def test_a_search_of_finished_runs(tiny, lab):
    runs = {"ssmax": [trained(tiny, lab, "ssmax", seed=seed) for seed in (0, 1)], "softmax": [trained(tiny, lab)]}
    found = needles.search(runs, lab, 40, 10)
    assert found.rules == ["ssmax", "softmax"]
    assert len(found.ranked("ssmax")) == 2 * 2  # two seeds of two heads
    assert found.ranked("ssmax") == sorted(found.ranked("ssmax"), reverse=True)
    tops, ends = found.endings("ssmax")
    assert len(tops) == len(ends) == 20
    assert max(tops) == tops[0]
    text = needles.markdown(found, runs["ssmax"][0].spec, "icl-lab needle")
    assert "prompts of 40 tokens, trained up to 41" not in text
    assert "| `softmax` |" in text
    with pytest.raises(BadValue, match="task needle, got linear"):
        needles.check(tiny("linear"))
    with pytest.raises(BadValue, match="a needle needs prompts of 6 tokens or more"):
        needles.check(runs["ssmax"][0].spec, 4)


def test_a_swapped_rule_is_what_is_searched_and_followed(tiny, lab):
    run = trained(tiny, lab)
    other = run.swapped("average")
    found = needles.search({"own": [run], "other": [other]}, lab, 40, 10)
    assert found.ranked("other")[0] == pytest.approx(1 / 40, rel=1e-4)
    assert found.ranked("own")[0] != pytest.approx(1 / 40, rel=1e-4)


def test_the_law_of_finished_runs(tiny, lab):
    run = trained(tiny, lab, "ssmax-free")
    (found,) = laws.learn([run], lab)
    assert len(found.p) == run.spec.reading(tasks.build(run.spec.task)).train_tokens - 2
    assert found.s.shape == (1, 2)
    assert {fit.law for fit in found.fits} == set(law.LAWS)
    text, files = laws.publish([found], run.spec, lab.store.root / "law", "icl-lab law")
    assert "Printed" in text
    again = laws.fitted((lab.store.root / "law" / "p.csv").read_text())
    assert [fit.law for fit in again[0]] == [fit.law for fit in found.fits]
    with pytest.raises(BadValue, match="only ssmax-free"):
        laws.check(tiny("linear", "ssmax"))
