"""Laws of n: fitted by hand, and to the factor that runs have learned."""

import io
import math

import numpy as np
import pandas as pd
import pytest

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.law import LAWS, Law, fits
from icl_lab.base.errors import BadValue
from icl_lab.runs.spec import resolve


@pytest.mark.parametrize(("true", "made"), [("log n", np.log), ("sqrt n", np.sqrt), ("n", np.positive)])
def test_law_that_made_the_numbers_is_found(true, made):
    n = np.arange(1, 65.0)
    noise = 0.01 * np.random.default_rng(0).normal(size=64)
    best, *others = fits(0.3 * made(n) + 2 + noise * made(n).std())
    assert best.law == true
    assert (best.slope, best.shift) == pytest.approx((0.3, 2), rel=0.05)
    assert others[0].aic > best.aic + 2
    assert best.at([4.0])[0] == pytest.approx(0.3 * made(4.0) + 2, rel=0.05)


def test_constant_is_a_law_with_one_parameter_less():
    residual = 0.01 * np.random.default_rng(1).normal(size=64)
    flat = fits(0.4 + residual)
    assert flat[0].law == "constant"
    rss = float(((residual - residual.mean()) ** 2).sum())
    assert flat[0].aic == pytest.approx(64 * math.log(rss / 64) + 4)
    with pytest.raises(BadValue, match="at least five values"):
        fits([1, 2, 3])


def test_laws_of_finished_runs(runs, lab):
    groups = runs("linear", "ssmax-free", seeds=2)
    analysis = Law()
    found = runner.ask(analysis, groups, lab)
    spec = groups["ssmax-free"][0].spec
    assert len(found[0].p) == spec.reading(tasks.build(spec.task)).train_tokens - 2
    assert found[0].s.shape == found[0].b.shape == (1, 2)
    assert {fit.law for fit in found[0].fits} == set(LAWS)
    text = "\n".join(analysis.table(found))
    assert "Printed (12 layers, 12 heads, 25,000 iterations): 0.0283 log n + 0.394." in text
    assert "* seed 1, layer 0: s, b of each head 1.0" in text
    (axes,) = analysis.figures(found, "a title")["law"].axes
    assert set(axes.get_legend_handles_labels()[1]) == {"seed 0", "other seeds", *LAWS}
    assert "of 2 seeds" in analysis.finding(found)
    table = pd.read_csv(io.StringIO(analysis.files(found)["p.csv"]))
    last = len(found[0].p) + 2
    assert table["seed"].tolist() == [0] * (last - 2) + [1] * (last - 2)
    assert table["n"].tolist() == 2 * list(range(3, last + 1))


def test_claims_are_about_laws(tmp_path):
    values = {0: 0.3 * np.log(np.arange(3, 40)) + 1, 1: 0.3 * np.arange(3, 40) + 1}
    lines = [f"{seed},{n},{p:.8g}" for seed, column in values.items() for n, p in enumerate(column, start=3)]
    analysis = Law()
    assert analysis.read(tmp_path) is None
    (tmp_path / "p.csv").write_text("\n".join(["seed,n,p", *lines]) + "\n")
    found = analysis.read(tmp_path)
    assert list(analysis.subjects(["softmax", "ssa"])) == list(LAWS)
    assert analysis.seeds(found) == [0, 1]
    aic = {(law, seed): analysis.value(found, law, {}, "", seed) for law in LAWS for seed in (0, 1)}
    assert min(LAWS, key=lambda law: aic[law, 0]) == "log n"
    assert min(LAWS, key=lambda law: aic[law, 1]) == "n"
    assert aic["n", 0] == next(fit.aic for fit in fits(found[0].p, 3) if fit.law == "n")
    assert analysis.value(found, "log n", {}, "explained", 0) == pytest.approx(1)
    assert "learned factor by AIC is log n in 1 of 2 seeds and n" in analysis.finding(found)
    for of, metric, seed, message in (
        ("log n", "slope", 0, "no metric 'slope'"),
        ("cubic", "", 0, "no law 'cubic' of seed 0; there are constant"),
        ("n", "", 7, "of seed 7"),
    ):
        with pytest.raises(KeyError, match=message):
            analysis.value(found, of, {}, metric, seed)


def test_runs_that_cannot_be_told_apart_are_refused(tiny, lab):
    plain, clamped = (lab.store.run(tiny("linear", attn), 0) for attn in ("ssmax-free", "ssmax-free:beyond=clamp"))
    Law().prepared([plain])
    with pytest.raises(BadValue, match="one run of each seed, got 2 of seed 0"):
        Law().prepared([plain, clamped])
    with pytest.raises(BadValue, match="has learned nothing, got softmax->ssmax-free"):
        Law().prepared([lab.store.run(tiny("linear", "softmax"), 0).swapped("ssmax-free")])


def test_rule_that_is_switched_to_in_training_counts():
    Law().check(resolve("linear", "softmax", "smoke", ("train.switch_step=52", "train.switch_to=ssmax-free")))
    assert Law.usual_rules == ("ssmax-free",)
