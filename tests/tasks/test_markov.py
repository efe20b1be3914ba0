"""Markov chains: rows by their law, steps by their rows, and the Bayes answer by enumeration."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from scipy.stats import beta, kstest

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.markov import bayes, dirichlet, unigram
from tests.tasks import draws

draw = partial(draws.draw, at="markov", length=100)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 3.0])
def test_rows_have_the_law_of_dirichlet(concentration):
    """One number of a row is Beta(a, (k - 1) a); rows sum to 1."""
    uniform = torch.rand(5000, 4, generator=stream(0, "rows"), dtype=torch.float64)
    rows = dirichlet(uniform, concentration)
    assert torch.allclose(rows.sum(1), torch.ones(5000, dtype=torch.float64))
    for column in (0, 3):
        assert kstest(rows[:, column].numpy(), beta(concentration, 3 * concentration).cdf).pvalue > 0.001
    few = dirichlet(uniform, 1e-3)
    assert torch.allclose(few.sum(1), torch.ones(5000, dtype=torch.float64))  # finite, too


def test_chains_step_as_the_prior_says():
    """Two steps from the same state agree with probability E sum_j p_j^2 = (a + 1) / (k a + 1)."""
    for concentration in (0.3, 1.0, 3.0):
        task, prompt = draw("markov", prompts=6000, length=12, concentration=concentration)
        agree = []
        for row, wanted in zip(prompt.tokens.tolist(), prompt.targets.long().tolist(), strict=True):
            steps = [b for a, b in zip(row, wanted, strict=True) if a == row[0]]
            agree += [steps[0] == steps[1]] if len(steps) > 1 else []
        expected = (concentration + 1) / (3 * concentration + 1)
        # Prompts that come back to a state are no even draw of rows: those that leave it for good are missing.
        assert sum(agree) / len(agree) == pytest.approx(expected, abs=0.08)
        assert torch.equal(prompt.targets[:, :-1].long(), prompt.tokens[:, 1:])


def test_the_first_steps_are_even():
    _, prompt = draw("markov:k=4", prompts=20_000, length=1)
    pairs = torch.bincount(4 * prompt.tokens[:, 0] + prompt.targets[:, 0].long(), minlength=16) / 20_000
    assert (pairs - 1 / 16).abs().max() < 4 * math.sqrt(1 / 16 / 20_000)


@pytest.mark.parametrize("concentration", [0.5, 1.0, 2.0])
def test_the_bayes_answer_by_counting_and_by_integration(concentration):
    tokens = torch.tensor([[0, 1, 0, 0, 1, 0, 1, 1]])
    shares = bayes(tokens, 2, concentration).exp()[0]
    grid = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)
    for t in range(8):
        row = tokens[0, : t + 1].tolist()
        counts = dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], 0)
        for pair in pairwise(row):
            counts[pair] += 1
        here = row[-1]
        c = [counts[here, 0], counts[here, 1]]
        told = [(n + concentration) / (sum(c) + 2 * concentration) for n in c]
        assert shares[t].tolist() == pytest.approx(told, rel=1e-5)
        # The posterior of the chance of 0 after this symbol, on a grid.
        density = grid ** (c[0] + concentration - 1) * (1 - grid) ** (c[1] + concentration - 1)
        assert (grid * density).sum().item() / density.sum().item() == pytest.approx(told[0], abs=0.02)


def test_unigram_by_hand():
    shares = unigram(torch.tensor([[0, 1, 1]]), 3).exp()[0]
    assert torch.allclose(shares, torch.tensor([[2 / 4, 1 / 4, 1 / 4], [2 / 5, 2 / 5, 1 / 5], [2 / 6, 3 / 6, 1 / 6]]))


@pytest.mark.slow
def test_what_references_score():
    """The regret of the Bayes answer is 0 in training, of no knowledge log k less its nats; unigram between."""
    task, prompt = draw("markov", prompts=2000)
    views = {
        name: {metric: values.mean().item() for metric, values in task.views(errors, prompt).items()}
        for name, rule in task.references().items()
        for errors in [task.errors(rule(prompt), prompt)]
    }
    assert abs(views["bayes"]["regret"]) < 1e-6
    assert views["uniform"]["nats"] == pytest.approx(math.log(3), rel=1e-6)
    assert views["uniform"]["regret"] == pytest.approx(math.log(3) - views["bayes"]["nats"], rel=1e-4)
    assert 0.05 < views["unigram"]["regret"] < views["uniform"]["regret"]
    # Far into a prompt the loss comes near to the entropy of a row: psi(k a + 1) - psi(a + 1) = 1/2 + 1/3 at k = 3.
    assert views["bayes"]["nats"] == pytest.approx(1 / 2 + 1 / 3, abs=0.1)
    assert views["bayes"]["nats"] > 1 / 2 + 1 / 3 - 0.02


@pytest.mark.slow
def test_under_a_shift_the_regret_is_against_who_knows_of_it():
    task, prompt = draw("markov", prompts=2000, concentration=0.3)
    errors = task.errors(task.references()["bayes"](prompt), prompt)
    assert task.views(errors, prompt, concentration=0.3)["regret"].mean() > 0.005
    knows = task.errors(bayes(prompt.tokens, 3, 0.3), prompt)
    assert task.views(knows, prompt, concentration=0.3)["regret"].abs().max() < 1e-6


def test_views_by_hand():
    task = tasks.build("markov:k=2")
    prompt = Prompt(torch.tensor([[0, 1, 0, 1]]), torch.tensor([[1.0, 0, 1, 0]]), torch.ones(1, 4, dtype=torch.bool))
    views = task.views(torch.full((1, 4), 2.0), prompt)
    best = [math.log(2), math.log(2), math.log(3 / 2), math.log(3 / 2)]  # 1/2, 1/2, then (1 + 1) / (1 + 2)
    assert views["nats"].item() == 2
    assert views["regret"].item() == pytest.approx(2 - sum(best) / 4)
    assert views["tail"].item() == pytest.approx(2 - best[3])
    prompt = Prompt(*(part.repeat(1, 3) for part in (prompt.tokens, prompt.targets, prompt.scored)))
    errors = torch.arange(12.0).unsqueeze(0)
    told = bayes(prompt.tokens, 2).gather(2, prompt.targets.long().unsqueeze(2))[..., 0]
    tail = (errors + told)[0, -3:].mean().item()  # 12 // 4
    assert task.views(errors, prompt)["tail"].item() == pytest.approx(tail)
