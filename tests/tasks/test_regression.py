"""Regression in many dimensions: draws, estimators against independent ones, and the known curves of the papers."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.tasks import estimators
from tests.cases import few
from tests.tasks import draws

draw = partial(draws.draw, at="regression", length=40)
RAVENTOS = "regression:dim=8,noise=0.5,tasks=16"


def parts(prompt):
    """Inputs (b L d) and labels (b L) in double precision."""
    numbers = prompt.tokens.double()
    return numbers[:, ::2], numbers[:, 1::2, 0]


def test_a_prompt_holds_inputs_and_labels_of_one_function():
    task, prompt = draw("regression:dim=3", prompts=8, length=10)
    x, y = parts(prompt)
    for own_x, own_y in zip(x.numpy(), y.numpy(), strict=True):
        w = np.linalg.lstsq(own_x[:3], own_y[:3], rcond=None)[0]
        assert np.allclose(own_x @ w, own_y, atol=1e-3)
    assert prompt.tokens[:, 1::2, 1:].abs().max() == 0
    assert torch.equal(prompt.targets[:, ::2], prompt.tokens[:, 1::2, 0])
    assert task.asked(4) == [0, 2, 4, 6]


def test_spreads_are_standard_deviations():
    task, prompt = draw("regression:dim=4,noise=0.5", prompts=20_000, length=4, sigma_x=2.0, sigma_f=3.0, noise=1.0)
    x, y = parts(prompt)
    assert x.std().item() == pytest.approx(2, rel=0.02)
    assert y.square().mean().item() == pytest.approx(4 * 4 * 9 + 1, rel=0.05)
    quiet = draw("regression:dim=4,noise=0.5", prompts=20_000, length=4, sigma_x=2.0, sigma_f=3.0, noise=0.5)[1]
    assert (parts(quiet)[1] - y).std().item() == pytest.approx(0.5, rel=0.03)  # the same noise, half as large


def test_sparse_functions_have_so_many_weights_anywhere():
    w = tasks.regression._weights(stream(0, "sparse"), 20_000, 20, 3, 20)
    assert ((w != 0).sum(1) == 3).all()
    assert ((w != 0).float().mean(0) - 3 / 20).abs().max() < 0.015
    assert w[w != 0].std().item() == pytest.approx(1, abs=0.02)
    task, prompt = draw("regression:dim=20,sparse=3", prompts=4000)
    zero = task.errors(task.references()["zero"](prompt), prompt)
    assert zero.mean().item() == pytest.approx(1, rel=0.06)


def test_fixed_functions_stay_and_new_ones_do_not():
    task, prompt = draw(RAVENTOS.replace("noise=0.5", "noise=0"), prompts=200, length=12)
    x, y = parts(prompt)
    fits = ((x @ task.known.double().T - y.unsqueeze(2)).abs().amax(1) < 1e-4).sum(1)
    assert (fits == 1).all()
    assert len(set(((x @ task.known.double().T - y.unsqueeze(2)).abs().amax(1)).argmin(1).tolist())) == 16
    new = task.suites()["new-"].sample(stream(0, "regression"), 200, 12)
    x, y = parts(new)
    assert ((x @ task.known.double().T - y.unsqueeze(2)).abs().amax(1) > 1e-2).all()
    assert list(task.suites()) == ["", "new-"]
    assert list(tasks.build("regression").suites()) == [""]
    errors = torch.rand(4, 12)
    assert set(task.suites()["new-"].views(errors, new)) == {f"new-{name}" for name in task.views(errors, prompt)}


def test_references_are_the_estimators_of_what_a_task_draws():
    """Least squares of exact labels, else ridge by the variance of the noise; lasso is that of Garg et al."""
    for noise in (0.0, 0.5):
        task, prompt = draw(f"regression:dim=5,sparse=2,noise={noise}", length=12)
        x, y = parts(prompt)
        wanted = {
            "ridge": estimators.ridge(x, y, noise**2),
            "averaging": estimators.averaging(x, y),
            "3-nn": estimators.nearest(torch.cdist(x, x), y, 3),
            "lasso": estimators.lasso(x, y, 0.01),
        }
        for name, answers in wanted.items():
            torch.testing.assert_close(task.references()[name](prompt)[:, ::2, 0], answers.float(), msg=name)


@pytest.mark.parametrize("penalty", [0.0, 1e-4, 0.25])
def test_ridge_against_numpy(penalty):
    _, prompt = draw("regression:dim=5,noise=0.5", prompts=4, length=12)
    x, y = parts(prompt)
    found = estimators.ridge(x, y, penalty)
    for b in range(4):
        for i in range(12):
            known, told = x[b, :i].numpy(), y[b, :i].numpy()
            if penalty:  # as least squares with further rows sqrt(penalty) I
                known = np.concatenate((known, math.sqrt(penalty) * np.eye(5)))
                told = np.concatenate((told, np.zeros(5)))
            w = np.linalg.lstsq(known, told, rcond=None)[0] if len(told) else np.zeros(5)
            assert found[b, i].item() == pytest.approx(float(x[b, i].numpy() @ w), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("sigma", [0.5, 0.0])
def test_the_discrete_answer_by_a_loop(sigma):
    weights = torch.randn(5, 3, generator=stream(0, "w"), dtype=torch.float64)
    x = torch.randn(2, 4, 3, generator=stream(0, "x"), dtype=torch.float64)
    y = (x @ weights[2]) + sigma * torch.randn(2, 4, generator=stream(0, "e"), dtype=torch.float64)
    found = estimators.discrete(x, y, weights, sigma)
    for b in range(2):
        for i in range(4):
            logs = [-sum((y[b, j] - weights[m] @ x[b, j]).item() ** 2 for j in range(i)) / 2 for m in range(5)]
            # Without noise: what fits exactly, all alike before the first.
            shares = [math.exp(log / sigma**2) if sigma else float(log > -1e-9) for log in logs]
            answer = sum(p * (weights[m] @ x[b, i]).item() for m, p in enumerate(shares)) / sum(shares)
            assert found[b, i].item() == pytest.approx(answer, rel=1e-6)


def test_the_discrete_answer_to_laplace_noise_by_hand():
    """Weights 1 and -1, sigma 1: residuals of y = 3 at x = 1 are 2 and 4, their log odds sqrt(2) (4 - 2)."""
    x, y = torch.tensor([[[1.0], [1.0]]]).double(), torch.tensor([[3.0, 0.0]]).double()
    found = estimators.discrete(x, y, torch.tensor([[1.0], [-1.0]]), 1.0, "laplace")
    assert found[0].tolist() == pytest.approx([0, math.tanh(math.sqrt(2))])
    student = estimators.discrete(x, y, torch.tensor([[1.0], [-1.0]]), 1.0, "student")  # 2 log((1 + 16) / (1 + 4))
    assert student[0, 1].item() == pytest.approx(math.tanh(math.log(17 / 5)))


def bayes(task):
    """The reference that is the posterior mean of what a task draws; None where no reference is."""
    if task.under == "noise" or task.function not in ("linear", "quadratic"):
        return None
    if task.tasks and task.functions == "trained":
        return "discrete-mmse"
    named = "ridge" if task.function == "linear" else "ridge-squares"
    return named if task.law == "normal" and not task.sparse else None


SETTINGS = [
    *("dim=4,noise=0.3,layout=separate", "dim=4,function=quadratic,noise=1", "dim=4,tasks=16,noise=2,law=student"),
    *("dim=4,noise=1", "dim=4,tasks=16,noise=2", "dim=4,tasks=16,noise=2,law=laplace"),
    "dim=4,tasks=16,sparse=2,noise=1,law=laplace",
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", few(3, SETTINGS))
def test_no_predictor_beats_a_bayes_answer(setting):
    """Nor does one that takes noise for twice, or half, or another law of it: wherever a reference is Bayes."""
    task = tasks.build(f"regression:{setting},shift=all")
    compared = 0
    for suite in task.suites().values():
        named, prompt = bayes(suite), suite.sample(stream(0, "bayes"), 2000, 12)
        if named is None:
            continue
        x, y = parts(prompt)
        x = x[..., suite.width - suite.dim :]
        others = dict(suite.references())
        best = suite.errors(others.pop(named)(prompt), prompt)
        errors = {name: suite.errors(predict(prompt), prompt) for name, predict in others.items()}
        for law, share in itertools.product(("normal", "student", "laplace"), (1, 0.5, 2)):
            if named == "discrete-mmse":
                told = estimators.discrete(x, y, suite.known, share * task.noise, law)
            else:
                inputs = x if named == "ridge" else x.square() / 3**0.5
                told = estimators.ridge(inputs, y, (share * task.noise) ** 2)
            answers = told[:, -1:] if suite.asks_once else told
            errors[f"{law} {share}"] = (answers - prompt.targets[:, suite.answers]).square() / suite.size
        for name, own in errors.items():
            lead = (own - best).mean(1)
            assert lead.mean() > -3 * lead.std() / len(lead) ** 0.5 - 1e-6, (suite.own, named, name)
            compared += 1
    assert compared >= 7 * (9 + 3)  # test sets, and predictors of each


def test_a_discrete_answer_is_the_same_in_pieces(monkeypatch):
    weights = torch.randn(5, 3, dtype=torch.float64)
    x, y = torch.randn(7, 4, 3, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    whole = estimators.discrete(x, y, weights, 0.5)
    monkeypatch.setattr(estimators, "FEW", 45)  # two prompts at once
    assert torch.allclose(estimators.discrete(x, y, weights, 0.5), whole)


SHAPES = [(1, 8), (3, 12), (6, 12), (8, 20), (20, 41), (20, 12), (50, 30)]  # dimensions and examples


def fits(dim, length, sigma_f=1.0):
    """About 200 random fits of a shape: examples and the question after them."""
    kind = f"regression:dim={dim}" + (f",sparse={dim // 6}" if dim > 5 else "")
    _, prompt = draw(kind, prompts=200 // length + 1, length=length, sigma_f=sigma_f)
    return parts(prompt)


@pytest.mark.parametrize("penalty", [0.01, 0.3])
@pytest.mark.parametrize(("dim", "length"), SHAPES)
@pytest.mark.slow
def test_lasso_meets_the_conditions_of_its_minimum(dim, length, penalty):
    """|X^T (y - X w)| / n is the penalty where a weight is not 0, with its sign, and no more where it is."""
    x, y = fits(dim, length, sigma_f=3.0)
    for n in range(1, length):
        gram, moment = (part[:, n] / n for part in estimators._moments(x, y))
        w = estimators._path(gram, moment, penalty)
        missed = y[:, :n] - torch.einsum("bnd,bd->bn", x[:, :n], w)
        slope = torch.einsum("bnd,bn->bd", x[:, :n], missed) / n
        here = w != 0
        close = 1e-9 * moment.abs().max().item()
        assert torch.allclose(slope[here], penalty * w[here].sign(), rtol=0, atol=close)
        assert (slope[~here].abs() <= penalty + close).all()
        gap = estimators.duality_gap(gram, moment, y[:, :n].square().mean(1), w, penalty)
        assert (gap.abs() <= 1e-12 * y[:, :n].square().mean(1)).all()


@pytest.mark.parametrize(("dim", "length"), SHAPES)
@pytest.mark.slow
def test_lasso_against_scikit_learn(dim, length):
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = fits(dim, length)
    found = estimators.lasso(x, y, 0.01)
    for b in range(len(x)):
        for i in range(1, length):
            fit = linear_model.Lasso(alpha=0.01, fit_intercept=False, max_iter=1_000_000, tol=1e-12)
            fit.fit(x[b, :i].numpy(), y[b, :i].numpy())
            assert found[b, i].item() == pytest.approx(float(fit.predict(x[b, i : i + 1].numpy())[0]), abs=1e-6)


def test_a_lasso_that_has_not_ended_says_what_remains(monkeypatch):
    x, y = fits(6, 12)
    monkeypatch.setattr(estimators, "_path", lambda gram, moment, penalty: torch.zeros_like(moment))
    with pytest.warns(UserWarning, match=r"lasso: \d+ of \d+ fits are left a duality gap of up to"):
        estimators.lasso(x, y, 0.01)


def test_inputs_that_are_all_0_say_nothing():
    x, y = torch.zeros(1, 4, 3, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)
    for found in (estimators.lasso(x, y, 0.01), estimators.ridge(x, y, 0.0), estimators.averaging(x, y)):
        assert torch.equal(found, torch.zeros(1, 4, dtype=torch.float64))


def test_views_by_hand():
    task, prompt = draw("regression:dim=2", prompts=1, length=5)
    views = task.views(torch.tensor([[8.0, 4.0, 6.0, 1.0, 2.0]]), prompt, sigma_x=2.0, sigma_f=3.0)
    expected = {"mse-late": 3, "mse-all": 21 / 5, "mse-last": 2, "nmse-late": 3 / 36}
    assert {name: value.item() for name, value in views.items()} == pytest.approx(expected)
    outputs = torch.zeros(1, 10, 1)
    outputs[0, ::2, 0] = prompt.targets[0, ::2] + torch.tensor([1.0, 2, 0, 0, 1])
    assert task.errors(outputs, prompt)[0].tolist() == pytest.approx([0.5, 2, 0, 0, 0.5], abs=1e-5)
    assert task.loss(outputs, prompt).item() == pytest.approx(0.6, rel=1e-4)


def test_noise_is_an_axis_where_there_is_some():
    assert tasks.build("regression:noise=0.5").axes["tiny"]["noise"] == (0.25, 0.5, 1)
    assert "noise" not in tasks.build("regression").training
