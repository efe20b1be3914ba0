"""Bounds as an analysis: normalizers are asked without a model, a seed is a draw, and claims read its numbers."""

import json
import math
from statistics import fmean

import pytest

from icl_lab.analyses import runner
from icl_lab.analyses.theory import LENGTHS, Theory
from icl_lab.runs.spec import resolve

pytestmark = pytest.mark.usefixtures("quick_pictures")
SSMAX = "ssmax:s=0.43,learn=no"


@pytest.fixture
def asked(lab, monkeypatch):
    """Return what is found for normalizers; a training would fail the test."""

    def train(*_):
        raise AssertionError("a model was trained")

    monkeypatch.setattr(runner, "load_or_train", train)

    def ask(*rules, seeds=2, **options):
        analysis = Theory(**{"rows": 200, "keys": (2, 8), **options})
        specs = {rule: resolve("linear", rule, "smoke") for rule in rules}
        groups = {rule: [lab.store.run(spec, seed) for seed in range(seeds)] for rule, spec in specs.items()}
        return analysis, groups, runner.ask(analysis, groups, lab)

    return ask


@pytest.mark.slow
def test_the_audit_of_appendix_j(asked):
    analysis, _, found = asked("softmax", "ssa")
    for rule, entry, norm in (("softmax", 0.25, 0.5), ("ssa", 0.375, 0.75)):
        for seed in (0, 1):
            highest = analysis.value(found, rule, {"keys": [2]}, "jacobian-entry", seed)
            assert 0.9 * entry < highest <= entry * (1 + 1e-9)
            assert 0.9 * norm < analysis.value(found, rule, {"keys": [2]}, "jacobian-norm", seed) <= norm * (1 + 1e-9)
            assert analysis.value(found, rule, {"keys": [8]}, "below-bound", seed) == 1
            assert analysis.value(found, rule, {"keys": [8]}, "entropy-margin", seed) < -0.1
            for margin in ("ceiling-margin", "upper-margin", "lower-margin"):
                assert analysis.value(found, rule, {"keys": [8]}, margin, seed) > 0


def test_softmax_fades_and_ssmax_keeps_or_spreads_by_the_gap(asked):
    analysis, _, found = asked("softmax", SSMAX, seeds=1)

    def largest(rule, keys, gap):
        return analysis.value(found, rule, {"keys": [keys], "gap": [gap]}, "", 0)

    assert largest("softmax", LENGTHS[-1], 3.0) < 0.01 < 0.9 < largest(SSMAX, LENGTHS[-1], 3.0)
    assert largest(SSMAX, LENGTHS[-1], 1.0) < largest(SSMAX, 64, 1.0)
    assert analysis.value(found, "softmax", {"gap": [1.0]}, "slope", 0) == pytest.approx(-1, abs=0.02)
    assert analysis.value(found, SSMAX, {"gap": [4.0]}, "slope", 0) == pytest.approx(0, abs=0.01)


def test_errors_in_half_precision_are_those_of_its_rounding(asked):
    analysis, _, found = asked("softmax", seeds=1)
    half, brain = (analysis.value(found, "softmax", {"keys": [2, 8]}, f"{d}-error", 0) for d in ("float16", "bfloat16"))
    assert 2**-14 < half < 2**-9  # 11 and 8 bits of a mantissa, on scores up to 4
    assert 2**-11 < brain < 2**-6


def test_extremes_are_those_of_the_cells(asked):
    analysis, _, found = asked("ssa", seeds=1)
    for metric, of in (("jacobian-entry", max), ("ceiling-margin", min), ("entropy", fmean)):
        both, *parts = (analysis.value(found, "ssa", {"keys": keys}, metric, 0) for keys in ([2, 8], [2], [8]))
        assert both == of(parts)
        assert parts[0] != parts[1]


@pytest.mark.slow
def test_seeds_are_other_draws_and_rules_share_them(asked):
    analysis, _, found = asked("softmax", "ssa", seeds=2)
    first, second = (analysis.value(found, "softmax", {"keys": [8]}, "entropy", seed) for seed in (0, 1))
    assert first != second
    assert analysis.value(found, "softmax", {"keys": [8]}, "distance", 0) == 0
    assert 0 < analysis.value(found, "ssa", {"keys": [8]}, "distance", 0) < 0.3


def test_a_number_stands_for_a_bound(asked):
    analysis, _, found = asked("softmax", seeds=1)
    assert analysis.value(found, "reference:0.25", {}, "jacobian-entry", 0) == 0.25
    assert analysis.value(found, "reference:-0.9", {}, "slope", 0) == -0.9
    with pytest.raises(KeyError, match="is no number"):
        analysis.value(found, "reference:quarter", {}, "", 0)
    with pytest.raises(KeyError, match="one gap"):
        analysis.value(found, "softmax", {}, "slope", 0)


@pytest.mark.slow
def test_the_command_trains_nothing_and_names_rules_and_draws(run, tmp_path):
    rules = [word for rule in ("softmax", "ssa") for word in ("--attn", rule)]
    text, _ = run.ok("theory", *rules, "--seeds", "2", "--rows", "50", "--keys", "2,8")
    assert "Normalizers without a model, 2 draws." in text
    assert not (tmp_path / "results" / "runs").exists()
    (folder,) = (tmp_path / "results").glob("theory-*")
    study = json.loads((folder / "study.json").read_text())
    assert {(each["task"], each["preset"], each["spec"]) for each in study["runs"]} == {("rules", "", "")}
    page, rows = ((folder / name).read_text() for name in ("report.html", "rows.csv"))
    assert "Draws" in page
    assert "Training seeds" not in page
    assert "rules,softmax,-,-,0,2" in rows
    assert "linear" not in text + page + rows
    stored = Theory().read(folder)
    assert Theory().seeds(stored) == [0, 1]
    assert 0 < Theory().value(stored, "ssa", {"keys": [8]}, "entropy", 1) < math.log(8)
    assert run("theory", "--task", "linear")[0] != 0  # there is no task to be asked about
