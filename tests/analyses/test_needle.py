"""The needle score of heads and the outcomes of trials: by hand, and of finished runs."""

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import frame, runner
from icl_lab.analyses.needle import NeedleScores, auc, auc_on_resamples, endings, ranked, retrieve
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.comparison.statistics import draws
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.measure import Subject, TestSpec, draw, measure
from icl_lab.runs.spec import resolve

CPU = torch.device("cpu")


def by_hand(sharp=1e3):
    """A model of ``needle:keys=1`` with one head whose weights are written down, so that its answer is known.

    It reads tokens that carry the one before them in their second half (``with_predecessors``): the question looks for
    the token that stands after the key, and answers with it.
    """
    task = tasks.build("needle:keys=1,alphabet=4")
    spec = ModelSpec(layers=1, heads=1, width=24, positions="none", mlp=False, norm=False)
    model = GPT2(spec, TokenSpec(12, 4, 1, 16), "softmax", stream(0, "init"))
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


def test_model_by_hand_finds_every_needle(monkeypatch):
    model, task = by_hand()
    plain = draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {})
    places = task.value_places(plain)
    monkeypatch.setattr(type(task), "value_places", lambda self, prompt: places[: len(prompt.tokens)])
    scores, outcomes = retrieve(model, task, with_predecessors(plain), CPU)
    assert scores.shape == (64, 1, 1)
    assert scores.mean().item() == pytest.approx(1, abs=1e-6)
    assert outcomes.tolist() == [2] * 64


def test_uniform_attention_scores_one_key_and_chance():
    model, task = by_hand(sharp=0.0)
    plain = draw(task, 40, TestSpec(prompts=1024, axes={"length": [40.0]}), {})
    scores, outcomes = retrieve(model, task, with_predecessors(plain), CPU)
    assert scores.mean().item() == pytest.approx(1 / 40, rel=1e-5)
    blind = Subject(lambda prompt: torch.zeros(*prompt.tokens.shape[:2], 4))
    test = TestSpec(prompts=2048, axes={"depth": [50.0], "length": [40.0]})
    error = Grid.of(measure({"blind": blind}, task, test).cells, ["depth", "length"]).at(metric="exact")
    assert error == pytest.approx(3 / 4, abs=0.03)


def test_trials_have_three_outcomes():
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

    scores, outcomes = retrieve(Said(), task, prompt, CPU)
    assert outcomes.tolist() == [2, 1, 0]
    whole = [2 / 39] * 3  # two symbols of 39 keys, whatever the weights sum to
    assert scores.amax((1, 2)).tolist() == pytest.approx(whole)


CHOICE, SETTINGS = "needle:alphabet=4,keys=2", ("test.axes.length=32,48", "test.axes.depth=50")


@pytest.mark.slow
def test_scores_and_trials_of_finished_runs(runs, lab):
    groups = runs(CHOICE, "ssmax", "softmax", seeds=2, settings=SETTINGS)
    analysis = NeedleScores(length=40, trials=10)
    found = runner.ask(analysis, groups, lab)
    scores = [score for score, *_ in ranked(found, "ssmax")]
    assert len(scores) == 2 * 2  # two seeds of two heads
    assert scores == sorted(scores, reverse=True)
    tops, _ = endings(found, "ssmax")
    assert (len(tops), max(tops)) == (20, tops[0])
    table = analysis.table(found)
    assert table[0].startswith("Prompts of 40 tokens, trained up to 48.")
    assert sum("| `softmax` |" in line for line in table) == 1
    assert "In prompts of 40 tokens the best head gives the needle a share of 0.0" in analysis.finding(found)


def test_swapped_rule_is_what_is_scored(runs, lab):
    (run,) = runs(CHOICE, "softmax", settings=SETTINGS)["softmax"]
    found = runner.ask(NeedleScores(length=40, trials=10), {"own": [run], "other": [run.swapped("average")]}, lab)
    assert ranked(found, "other")[0][0] == pytest.approx(1 / 40, rel=1e-4)
    assert ranked(found, "own")[0][0] != pytest.approx(1 / 40, rel=1e-4)


def test_usual_length_is_eight_training_lengths():
    spec = resolve(CHOICE, "softmax", "smoke")
    assert NeedleScores().tokens(spec) == 8 * 64
    assert NeedleScores(length=40).tokens(spec) == 40


def test_claims_are_read_from_stored_files(tmp_path):
    who = {"task": "needle", "preset": "lite", "spec": "0", "seed": 0, "attn": "ssmax", "length": 40}
    heads = [
        {"layer": 0, "head": head, "metric": "needle-score", "value": value, "stderr": 0, "count": 3}
        for head, value in enumerate((0.25, 0.75))
    ]
    trials = [
        {"trial": trial, "metric": metric, "value": value, "stderr": None, "count": 1}
        for trial, (top, outcome) in enumerate(((0.9, 2), (0.5, 1), (0.1, 0)))
        for metric, value in (("top", top), ("outcome", outcome))
    ]
    analysis = NeedleScores()
    (tmp_path / "heads.csv").write_text(Grid.of(heads, ["length", "layer", "head"], **who).csv())
    assert analysis.value(analysis.read(tmp_path), "ssmax", {}, "best-head", 0) == 0.75
    (tmp_path / "trials.csv").write_text(Grid.of(trials, ["length", "trial"], **who).csv())
    found = analysis.read(tmp_path)
    assert analysis.seeds(found) == [0]
    assert analysis.value(found, "ssmax", {}, "found", 0) == pytest.approx(1 / 3)
    assert analysis.value(found, "ssmax", {}, "first", 0) == pytest.approx(2 / 3)
    assert analysis.value(found, "ssmax", {}, "top", 0) == pytest.approx(0.5)
    assert analysis.value(found, "ssmax", {"length": [40]}, "", 0) == pytest.approx(0.5)
    for metric, each in (("", [0.9, 0.5, 0.1]), ("found", [1, 0, 0]), ("first", [1, 1, 0])):
        drawn = analysis.on_resamples(found, "ssmax", {"length": [40]}, metric, 0)
        assert drawn == pytest.approx([sum(each) / 3, *(draws(0, 3) @ each / 3)])
    assert set(analysis.on_resamples(found, "reference:0.5", {}, "auc", 0)) == {0.5}
    assert analysis.on_resamples(found, "ssmax", {}, "best-head", 0) is None


def test_area_under_the_roc_curve_is_that_of_ranks():
    from scipy.stats import mannwhitneyu

    rng = stream(0, "auc")
    scores = (torch.rand(80, generator=rng) * 10).round().tolist()
    right = [score + 5 * float(torch.rand(1, generator=rng)) > 7 for score in scores]
    high, low = ([s for s, r in zip(scores, right, strict=True) if r is wanted] for wanted in (True, False))
    expected = mannwhitneyu(high, low).statistic / (len(high) * len(low))
    assert auc(scores, right) == pytest.approx(expected)


def test_auc_on_resamples_is_that_of_the_drawn_trials():
    rng = stream(0, "resampled auc")
    scores = (torch.rand(2, 9, generator=rng) * 5).round().numpy()
    right = torch.rand(2, 9, generator=rng).numpy() > 0.3
    found = auc_on_resamples(scores, right)
    assert found[0] == pytest.approx(auc(scores.ravel(), right.ravel()))
    lonely = 0
    for drawn, value in zip(draws(0, 9), found[1:], strict=True):
        trials = np.repeat(np.arange(9), drawn.astype(int))
        ends = right[:, trials].ravel()
        lonely += ends.all()
        expected = found[0] if ends.all() else auc(scores[:, trials].ravel(), ends)
        assert value == pytest.approx(expected)
    assert lonely  # such resamples are among them


def test_claims_read_the_area_from_trials():
    rows = [
        {"attn": rule, "seed": seed, "length": 64, "trial": trial, "metric": metric, "value": value, "count": 1}
        for rule, seed, tops, ends in (
            ("softmax", 0, (0.9, 0.6, 0.7, 0.1), (2, 2, 1, 0)),
            ("softmax", 1, (0.1, 0.2, 0.3, 0.4), (2, 1, 0, 0)),
            ("ssmax", 0, (0.1, 0.2, 0.3, 0.4), (2, 2, 2, 2)),
        )
        for trial, cell in enumerate(zip(tops, ends, strict=True))
        for metric, value in zip(("top", "outcome"), cell, strict=True)
    ]
    grid = Grid.of(rows, ["length", "trial"], task="needle", preset="lite", spec="0")
    found = frame.StoredGrids({"heads": grid, "trials": grid})
    assert NeedleScores().value(found, "softmax", {}, "auc", 0) == pytest.approx(0.75)  # first only is no success
    assert NeedleScores().value(found, "softmax", {}, "auc", 1) == 0
    assert NeedleScores().value(found, "reference:0.5", {}, "auc", 0) == 0.5
    with pytest.raises(KeyError, match="4 of 4 trials are all right"):
        NeedleScores().value(found, "ssmax", {}, "auc", 0)
