"""Comparing normalizers from stored grids: pairing, gaps, the declared summaries and the table."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.comparison import page
from icl_lab.comparison.clip import clip_model, clip_targets
from icl_lab.comparison.gather import trained_on
from icl_lab.comparison.page import tables, words
from icl_lab.comparison.statistics import holm
from icl_lab.comparison.study import PairedGrids, compare, tidy
from icl_lab.runs.measure import Errors, draw
from icl_lab.runs.spec import resolve
from icl_lab.tasks.base import Summary
from tests.comparison.made import SIGMAS, study


def noise(error, seeds, spread, shared=None, prompts=64):
    """Errors of prompts in every cell, whose means are error(sigma_f, seed)."""
    rng = np.random.default_rng(1 if shared else None)
    made = []
    for seed in range(seeds):
        errors = Errors(["sigma_x", "sigma_f", "length"])
        for s in SIGMAS:
            factors = np.exp(spread * rng.normal(size=prompts))
            values = torch.tensor(error(s, seed) * factors / factors.mean())
            errors.add({"sigma_x": 1, "sigma_f": s, "length": 40}, values)
        made.append(errors)
    return made


@pytest.mark.parametrize(("seeds", "said"), [(1, "1 training seed,"), (3, "3 training seeds,")])
def test_conditions_count_seeds(seeds, said):
    made = study({"softmax": lambda s, _: s, "ssa": lambda s, _: s}, seeds)
    assert f"; {said} preset smoke, baseline softmax." in words.conditions(made, resolve("linear", "ssa", "smoke"))


def test_prompt_variance_widens_an_interval_and_moves_nothing():
    rules = {"softmax": square, "ssa": lambda s, k: (0.5 + 0.1 * k) * square(s, k)}
    alone = compare(study(rules))
    kept = {name: noise(error, 3, 1.0) for name, error in rules.items()}
    wide = compare(study(rules, kept=kept))
    for a, b in zip(alone, wide, strict=True):
        assert (b["effect"], b["p_t"]) == (a["effect"], a["p_t"])
        assert a["p_widened"] == pytest.approx(a["p_t"])
        assert b["p_widened"] > a["p_widened"]
        assert b["low"] < a["low"] < a["high"] < b["high"]
    home, *others, _ = wide  # training conditions are declared, and so a family of their own
    assert (home["sigma_f"], home["p_holm"]) == (1, home["p_widened"])
    corrected = holm([row["p_widened"] for row in wide[:-1]])  # what is corrected is the widened p, over all five cells
    assert [row["p_holm"] for row in others] == pytest.approx(corrected[1:].tolist())
    # The summary is the mean log error over sigma_f: five cells with noise of their own average it out.
    spread = [row["high"] - row["low"] for row in wide]
    assert alone[-1]["metric"] == wide[-1]["metric"] == "summary"
    assert spread[-1] < min(spread[:-1])


def test_prompt_variance_that_both_rules_share_cancels():
    rules = {"softmax": square, "ssa": lambda s, k: (0.5 + 0.1 * k) * square(s, k)}
    kept = {name: noise(error, 3, 1.0, shared=True) for name, error in rules.items()}
    for a, b in zip(compare(study(rules)), compare(study(rules, kept=kept)), strict=True):
        assert (a["low"], a["high"]) == pytest.approx((b["low"], b["high"]))


def test_one_seed_has_the_interval_of_its_prompts_and_no_best():
    rules = {"softmax": square, "ssa": lambda s, k: 0.1 * square(s, k)}
    one = study(rules, seeds=1, kept={name: noise(error, 1, 0.3) for name, error in rules.items()})
    for row in compare(one):
        assert row["low"] < row["effect"] < row["high"] < 0
        assert math.isnan(row["p_t"])
    assert not any(row.best for row in page.table(one, resolve("linear", "softmax")).rows)


def test_a_rate_is_shown_with_what_its_prompts_allow():
    who = {"task": "every", "preset": "lite", "spec": "0", "seed": 0, "metric": "balanced-last", "count": 64}
    grids = {}
    for rule in ("softmax", "ssa"):
        rows = [
            {"attn": name, "sigma": 1.0, "length": length, "value": value, "stderr": 0.0}
            for name in (rule, "reference:always-false")
            for length, value in ((40.0, 0.0), (80.0, 0.25))
        ]
        grids[rule] = [Grid.of(rows, ["sigma", "length"], **who)]
    made = PairedGrids(tasks.build("every"), grids, "softmax", {"sigma": 1.0, "length": 40.0})
    assert page.table(made, resolve("every", "softmax")).rows[0].cells[1] == "0 [0, 0.057]"


def square(s, seed):
    return s**2 * (1 + 0.1 * seed)


def test_two_identical_runs_compare_to_exactly_one():
    for row in compare(study({"softmax": square, "ssa": square})):
        assert (row["effect"], row["low"], row["high"], row["p_t"], row["p_holm"]) == (0, 0, 0, 1, 1)


def test_an_effect_is_the_mean_log_ratio_by_hand():
    halved = {0: 0.5, 1: 0.4, 2: 0.6}
    rows = compare(study({"softmax": square, "ssa": lambda s, k: halved[k] * square(s, k)}))
    logs = np.log([0.5, 0.4, 0.6])
    cell = next(row for row in rows if row["metric"] == "mse-code" and row["sigma_f"] == 4)
    assert cell["effect"] == pytest.approx(logs.mean())
    assert cell["high"] - cell["effect"] == pytest.approx(4.302653 * logs.std(ddof=1) / math.sqrt(3), rel=1e-5)
    assert cell["seeds"] == 3
    assert math.isnan(cell["p_flip"])
    # five equal p values: the smallest is multiplied by five, and the others may not be smaller
    assert cell["p_holm"] == pytest.approx(min(1, 5 * cell["p_t"]))


def test_linears_summary_is_the_mean_log_error_2_to_10():
    (value, *_) = study({"softmax": lambda s, k: math.exp(3.0), "ssa": square}).summary("softmax")
    assert value == pytest.approx(3)
    rows = compare(study({"softmax": square, "ssa": lambda s, k: 2 * square(s, k)}))
    summary = next(row for row in rows if row["metric"] == "summary")
    assert summary["effect"] == pytest.approx(math.log(2))


def noisy(factor, noise):
    return lambda s, k: factor * square(s, k) * math.exp(noise * (k - 1) * (1 + s / 10))


def test_p_is_corrected_over_cells_and_over_summaries():
    """Three normalizers in five cells are 15 comparisons, their summaries three, training conditions three."""
    made = study({"softmax": square, "ssa": noisy(0.5, 0.01), "ssmax": noisy(0.9, 0.02), "lssa": noisy(1.0, 0.3)})
    rows = compare(made)
    cells, sums = ([row for row in rows if (row["metric"] == "summary") == which] for which in (False, True))
    homes = [row for row in cells if row["sigma_f"] == 1]
    assert (len(cells), len(sums), len(homes)) == (15, 3, 3)
    assert {row["family"] for row in cells if row["sigma_f"] != 1} == {15}
    all_cells = [row | {"p_holm": made.family.corrected(row["attn"], cell)} for row in cells
                 for cell in made.cells() if cell["sigma_f"] == row["sigma_f"]]  # fmt: skip
    for family in (all_cells, sums, homes):
        assert family is all_cells or {row["family"] for row in family} == {3}
        ranked = sorted(family, key=lambda row: row["p_widened"])
        assert ranked[0]["p_holm"] == pytest.approx(len(family) * ranked[0]["p_widened"])
        assert ranked[1]["p_holm"] == pytest.approx((len(family) - 1) * ranked[1]["p_widened"])
        assert ranked[-1]["p_holm"] == pytest.approx(1)
    clear = {(row["attn"], row["sigma_f"]): row["p_holm"] < 0.05 for row in cells}
    for rule in ("ssa", "ssmax", "lssa"):
        assert [sure for _, sure in made.effects(rule).values()] == [clear[rule, s] for s in SIGMAS]
    # By itself the first cell of ssmax is clear, as one of 15 it is not, and as one of three it is.
    assert made.versus("ssmax", "softmax", made.cells()[0]).clear
    assert not made.family.marked("ssmax", made.cells()[0])
    assert clear["ssmax", 1.0]
    assert clear["ssa", 1.0]


def test_a_mean_over_a_facet_that_is_shown_is_a_comparison_too():
    training = {"depth": 50.0, "length": 64.0}
    grids = {
        rule: [needles(rule, k, lambda d, n, k=k, c=c: c + d / 300 + n / 3000 + c * k / 50) for k in (0, 1)]
        for rule, c in (("softmax", 0.1), ("ssmax", 0.2))
    }
    made = PairedGrids(tasks.build("needle"), grids, "softmax", training)
    assert made.family.size == 6 + 3  # two depths by three lengths, and the mean over depths at each length
    assert made.family.corrected("ssmax", {"length": 128.0}) == made.family.corrected("ssmax", {"length": 256.0}) > 0


def test_a_comparison_without_p_does_not_count():
    rules = {"softmax": square, "ssa": lambda s, k: math.inf if s == 10 and k == 1 else 0.5 * noisy(1, 0.1)(s, k)}
    made = study(rules)
    assert made.family.size == 4
    assert math.isnan(made.family.corrected("ssa", made.cells()[-1]))
    assert not made.family.marked("ssa", made.cells()[-1])
    assert made.overalls.size == 0
    assert study({"softmax": square, "ssa": square}, seeds=1).family.size == 0


def test_csv_names_its_columns():
    some = study({"softmax": square, "ssa": square})
    lines = tidy(some, compare(some)).splitlines()
    assert lines[0].startswith("attn,baseline,sigma_x,sigma_f,length,metric,scale,seeds,effect,low,high")
    assert lines[0].endswith("iqm,wins,p_t,p_holm,p_flip,p_widened,family")
    assert len(lines) == 1 + len(SIGMAS) + 1


def test_a_name_that_begins_like_a_formula_is_text_in_the_csv():
    some = study({"softmax": square, "=cmd()!A1": square})
    rows = tidy(some, compare(some)).splitlines()[1:]
    assert all(row.startswith("'=cmd()!A1,softmax,") for row in rows)


def test_what_cannot_be_compared_is_said():
    with pytest.raises(BadValue, match="'softmax' is not among ssa, ssmax"):
        study({"ssa": square, "ssmax": square})
    lost = study({"softmax": square, "ssa": lambda s, k: math.nan if (s, k) == (4, 1) else 1.0})
    with pytest.raises(BadValue, match="'ssa', seed 1"):
        compare(lost)
    good = study({"softmax": square, "ssa": square})
    with pytest.raises(BadValue, match="same seeds"):
        PairedGrids(good.task, {**good.grids, "ssa": good.grids["ssa"][:2]}, "softmax", good.training)
    fewer = [g.where(sigma_f=[1.0, 2.0]) for g in good.grids["ssa"]]
    with pytest.raises(BadValue, match="same cells"):
        PairedGrids(good.task, {**good.grids, "ssa": fewer}, "softmax", good.training)


def test_the_clip_model_is_found_again():
    """A normalizer that answers clip(y, -8, 8) on the test prompts is explained by B = 8 without residual."""
    spec = resolve("linear", "softmax", "lite", ["test.axes.sigma_f=1,2,4,6,10"])

    def clipped(s, seed):
        prompt = draw(tasks.build("linear"), 80, spec.test, {"sigma_x": 1.0, "sigma_f": s}).first(80)
        y = prompt.targets[:, ::2][:, 3:].double()
        return (y.abs() - 8).clamp(min=0).square().mean().item() + 1e-6

    fit = clip_model(study({"softmax": square, "ssa": clipped}), "ssa", spec.test)
    assert fit.bound == 8
    assert fit.residual < 0.01


def test_effects_are_powers_of_two_where_seeds_agree():
    factor = lambda s, k: (0.25 if s > 3 else [0.1, 1, 9][k]) * (1 + 0.01 * k)  # noqa: E731
    effects = study({"softmax": square, "ssa": lambda s, k: factor(s, k) * square(s, k)}).effects("ssa")
    assert effects[1.0, 10.0][0] == pytest.approx(-2, abs=0.05)
    assert effects[1.0, 10.0][1]
    assert not effects[1.0, 2.0][1]


def test_without_the_declared_ends_there_is_no_summary():
    narrow = study({"softmax": square, "ssa": square})
    cut = {rule: [g.where(sigma_f=[1.0, 4.0, 6.0]) for g in grids] for rule, grids in narrow.grids.items()}
    some = PairedGrids(narrow.task, cut, "softmax", narrow.training)
    assert all(math.isnan(value) for value in some.summary("ssa"))
    assert not [row for row in compare(some) if row["metric"] == "summary"]


def needles(attn, seed, error):
    """A grid of the needle: error(depth, length) in every cell."""
    rows = [
        {"attn": name, "depth": d, "length": n, "metric": "exact", "value": value, "stderr": 0.1, "count": 64}
        for d in (10.0, 50.0)
        for n in (64.0, 128.0, 256.0)
        for name, value in ((attn, error(d, n)), ("reference:chance", 0.9))
    ]
    return Grid.of(rows, ["depth", "length"], task="needle", preset="lite", spec="0", seed=seed)


def test_differences_of_error_rates_lie_within_one():
    """Two seeds that differ wildly: Student's t of one degree of freedom reaches far beyond."""
    grids = {
        "softmax": [needles("softmax", k, lambda d, n, k=k: 0.9 * k) for k in (0, 1)],
        "ssmax": [needles("ssmax", k, lambda d, n, k=k: 0.9 - 0.9 * k) for k in (0, 1)],
    }
    made = PairedGrids(tasks.build("needle"), grids, "softmax", {"depth": 50.0, "length": 64.0})
    for found in (made.versus("ssmax", "softmax", {"length": 128.0}), made.overall("ssmax", "softmax")):
        assert found.interval(0.95)[1] > 10  # what the formula gives
        assert (found.low, found.effect, found.high) == (-1.0, 0.0, 1.0)
    assert study({"softmax": square, "ssa": square}).span == math.inf


@pytest.mark.parametrize(("choice", "metric", "span"), [
    ("linear", "mse-code", math.inf), ("needle", "exact", 1), ("needle", "cross-entropy", math.inf),
    ("every", "any", 1), ("regression:function=classification", "error-late", 1), ("text", "loss", math.inf),
])  # fmt: skip
def test_rates_have_a_span(choice, metric, span):
    assert tasks.build(choice).span(metric) == span


def test_a_facet_is_averaged_in_lines_and_kept_in_maps():
    training = {"depth": 50.0, "length": 64.0}
    grids = {
        "softmax": [needles("softmax", k, lambda d, n, k=k: d / 100 + n / 1000 + k / 50) for k in (0, 1)],
        "ssmax": [needles("ssmax", k, lambda d, n: d / 200) for k in (0, 1)],
    }
    made = PairedGrids(tasks.build("needle"), grids, "softmax", training)
    assert made.line("length") == [{"length": 64.0}, {"length": 128.0}, {"length": 256.0}]
    assert made.values("softmax", {"length": 128.0}) == pytest.approx([0.3 + 0.128, 0.3 + 0.148])
    assert made.values("softmax", {"length": 128.0, "depth": 10.0}) == pytest.approx([0.228, 0.248])
    assert made.summary("softmax") == pytest.approx([0.3 + 0.192, 0.3 + 0.212])  # lengths beyond 64, both depths
    assert made.map("ssmax")[256.0, 50.0] == pytest.approx(0.25)
    text = page.markdown(made, resolve("needle", "softmax"), "icl-lab compare")
    assert "mean over 2 values of depth" in text
    assert "depth 50" not in text


@pytest.mark.slow
def test_unequal_prompt_counts_each_keep_their_prompt_variance():
    """The standard errors of both mean logs, 1 / sqrt(64) and 1 / sqrt(1600) of the spread, add in quadrature."""
    rules = {"softmax": lambda s, k: 1.0, "ssa": lambda s, k: 1.0}
    kept = {"softmax": noise(rules["softmax"], 1, 0.3, True), "ssa": noise(rules["ssa"], 1, 0.3, True, 1600)}
    cell = {"sigma_x": 1, "sigma_f": 4, "length": 40}
    below, above = study(rules, seeds=1, kept=kept).versus("ssa", "softmax", cell).prompts_error
    assert (below + above) / 2 == pytest.approx(0.3 * math.hypot(1 / 8, 1 / 40), rel=0.25)


def test_errors_of_prompts_are_averaged_over_a_facet():
    kept = Errors(["depth", "length"])
    kept.add({"depth": 10, "length": 64}, torch.tensor([0.0, 1.0]))
    kept.add({"depth": 50, "length": 64}, torch.tensor([1.0, 1.0]))
    assert kept.at({"length": 64}).tolist() == [0.5, 1.0]
    assert kept.at({"length": 64, "depth": 10}).tolist() == [0.0, 1.0]
    with pytest.raises(KeyError, match="are not kept"):
        kept.at({"length": 65})


@pytest.mark.slow
def test_a_rule_whose_answers_are_no_numbers_is_compared():
    """Infinite in one cell: no interval, no p, never the best, no summary; the other cells are as ever."""
    rules = {"softmax": square, "ssa": lambda s, k: math.inf if s == 10 and k == 1 else 0.5 * square(s, k)}
    made = study(rules)
    rows = {row.get("sigma_f"): row for row in compare(made)}
    assert rows[10.0]["effect"] == math.inf
    assert math.isnan(rows[10.0]["low"])
    assert rows[6.0]["effect"] == pytest.approx(math.log(0.5))
    assert all(row["metric"] != "summary" for row in rows.values())
    assert made.summary("ssa")[1] == math.inf
    assert math.isfinite(made.summary("ssa")[0])
    assert clip_model(made, "ssa", resolve("linear", "softmax").test) is None
    text = page.table(made, resolve("linear", "softmax"))
    assert [row.cells[0] for row in text.rows[:2]] == ["softmax", "ssa"]
    assert page.pictures(made)
    turned = study({"softmax": rules["ssa"], "ssa": square})
    assert next(row for row in compare(turned) if row.get("sigma_f") == 10)["effect"] == -math.inf


def test_the_summary_is_what_the_task_declares():
    """Log errors 2 log s: along sigma_f 4 to 6 the mean height, and over all values their mean."""
    made = study({"softmax": lambda s, k: s**2, "ssa": lambda s, k: 2 * s**2}, seeds=1)
    logs = [2 * math.log(s) for s in SIGMAS]
    for summary, wanted in (
        (Summary("sigma_f", "range", 4, 6), (logs[2] + logs[3]) / 2),
        (Summary("sigma_f", "mean"), sum(logs) / 5),
        (Summary("sigma_f", "beyond"), sum(logs[1:]) / 4),
        (Summary("sigma_f", "range", 4, 20), math.nan),
    ):
        task = type("Other", (type(made.task),), {"summary": summary})()
        other = dataclasses.replace(made, task=task)
        assert other.summary("softmax") == [pytest.approx(wanted, nan_ok=True)]
        found = other.overall("ssa", "softmax")
        assert found is None if math.isnan(wanted) else found.effect == pytest.approx(math.log(2))


@pytest.mark.slow
def test_a_task_without_a_clip_axis_has_no_clip_column():
    made = study({"softmax": square, "ssa": square})
    task = type("Other", (type(made.task),), {"clip": None})()
    other = dataclasses.replace(made, task=task)
    assert clip_model(other, "ssa", resolve("linear", "softmax").test) is None
    spec = resolve("linear", "softmax")
    assert page.table(made, spec).head[-1] == "clip B (residual)"
    assert page.table(other, spec).head[-1] == "summary"
    assert "clip B fits sigma_f 4 to 10 best" in page.table(made, spec).note
    assert "clip" not in page.table(other, spec).note
    with pytest.raises(BadValue, match="take linear"):
        clip_targets(task, made.task.sample(torch.Generator(), 2, 5))


def test_a_column_is_not_called_summary_without_its_cell():
    made = study({"softmax": square, "ssa": square})
    task = type("Other", (type(made.task),), {"summary": Summary("sigma_f", "range", 4, 20)})()
    other, spec = dataclasses.replace(made, task=task), resolve("linear", "softmax")
    for table in (page.table(other, spec), tables.seeds_table(other)):
        assert "summary" not in table.head
        assert all(len(row.cells) == len(table.head) for row in table.rows)
    assert page.table(other, spec).note.startswith("Clip B fits sigma_f 4 to 10 best. p values")
    assert page.table(made, spec).note.startswith("Summary: ")


def test_a_page_says_where_runs_were_trained_on_other_threads():
    alike = trained_on([{"commit": "b", "threads": 1}, {"commit": "a", "threads": 1}])
    assert alike == "Runs: 2, trained at commit a, b."
    mixed = trained_on([{"commit": "a", "threads": 2}, {"commit": "a", "threads": 1}, {"commit": "a"}])
    assert mixed.endswith("They were trained on 1 or 2 CPU threads, whose bits differ.")
