"""Spending seeds where they decide soonest: the plan, and the command from nothing to a ledger."""

import csv
import dataclasses
import importlib
import io
import math
import re

import pytest
from msgspec.structs import replace

from icl_lab.errors import Stopped
from icl_lab.papers import claims, experiment, quantities, settle
from icl_lab.papers.cost import Costs
from icl_lab.papers.finished import Finished
from icl_lab.papers.schema import Variant
from icl_lab.papers.verdicts import Finding, judge
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store
from tests.cli.test_report import ANALYSED
from tests.papers.test_experiments import SMALL

THIRD = Variant("third", "ssmax")
pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.fixture
def finished(tmp_path):
    """The small experiment, of which nothing has been run."""
    (tmp_path / "small.toml").write_text(SMALL)
    return Finished(experiment.load("small", tmp_path), Store(tmp_path / "results"), "smoke")


class Second(Costs):
    """A training takes one second, or so many, and a test none, or so many."""

    def __init__(self, training=1.0, test=0.0):
        super().__init__(None, "smoke")
        self.taken = training, test

    def training(self, spec):
        return self.taken[0]

    def test(self, spec):
        return self.taken[1]


class AskedBefore:
    """Stored studies in which the models of these seeds were asked."""

    def __init__(self, *seeds):
        self.seeds = seeds

    def asked(self, label, run):
        return run.seed in self.seeds


def found(claim, *differences):
    """What a claim has come to: log ratios of its sides, one a training seed."""
    left = [math.exp(value) for value in differences]
    return judge(claim, range(len(left)), left, [1.0] * len(left), "log-ratio")


def test_claims_without_seeds_are_brought_to_their_first_look(finished):
    rise, better, _ = finished.experiment.claims
    step = settle.step("small", finished, [Finding(rise, "not run"), Finding(better, "not run")], Second())
    assert (step.seeds, step.claims) == (3, (rise.statement, better.statement))
    assert [(run.spec.attn, run.seed) for run in step.runs] == [
        (attn, seed) for attn in ("softmax", "ssa") for seed in range(3)
    ]
    assert step.seconds == 6
    alone = settle.step("small", finished, [Finding(rise, "not run")], Second())
    assert [(run.spec.attn, run.seed) for run in alone.runs] == [("softmax", seed) for seed in range(3)]


def test_a_training_that_is_tested_in_two_ways_is_reckoned_once(finished):
    better = finished.experiment.claims[1]
    ours = finished.specs["softmax"]
    finished.specs["wide"] = replace(ours, test=replace(ours.test, prompts=32))
    step = settle.step("small", finished, [Finding(better, "not run")], Second())
    assert (len(step.runs), step.seconds) == (6, 3)
    assert step.worth == pytest.approx(settle.FIRST_DECIDES * 3600 / 3)
    tested = settle.step("small", finished, [Finding(better, "not run")], Second(test=0.1))
    assert tested.seconds == pytest.approx(3 + 6 * 0.1)
    assert tested.worth == pytest.approx(settle.FIRST_DECIDES * 3600 / (3 + 6 * 0.1))


def test_what_is_decided_or_hopeless_or_not_in_the_grid_takes_no_seed(finished, monkeypatch):
    monkeypatch.setattr(Finished, "seeds", lambda self, of: set(range(24)))
    rise, _, missing = finished.experiment.claims
    decided = found(rise, 1.0, 1.01, 0.99)
    assert decided.verdict == "supported"
    hopeless = found(rise, *[0.11, 5.0, -4.7] * 8)
    assert hopeless.more is None
    assert hopeless.outlook == "more than 64 seeds"
    closed = [decided, hopeless, Finding(missing, "not run", note="no cell"), Finding(rise, "not learned")]
    assert settle.step("small", finished, closed, Second()) is None


def test_an_open_claim_goes_to_its_next_look_and_no_further(finished, monkeypatch):
    rise = finished.experiment.claims[0]
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2})
    open_claim = found(rise, 0.0, 0.5, 1.0)  # 16 seeds would decide it
    step = settle.step("small", finished, [open_claim], Second())
    assert step.seeds == 5
    ahead = open_claim.prospect
    assert 0.5 < ahead.chance < 1
    assert step.worth == pytest.approx(3600 / ahead.price)  # seeds of one second
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2, 3})  # one that was not looked at
    assert settle.step("small", finished, [open_claim], Second()).worth == pytest.approx(3600 / (ahead.price - 1))


def test_three_seeds_that_would_never_decide_leave_a_chance(finished, monkeypatch):
    """Effect and deviation of so few may be others: the claim is asked again."""
    rise = finished.experiment.claims[0]
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2})
    unsure = found(rise, 0.11, 5.0, -4.7)
    assert unsure.more is None
    assert re.fullmatch(r"more than 64 seeds, or with a chance of [1-9]\d% fewer", unsure.outlook)
    assert settle.step("small", finished, [unsure], Second()).seeds == 5


def test_seeds_that_led_to_a_claim_do_not_count_for_its_looks(finished, monkeypatch):
    """Five seeds of which two led to it are a first look; the next, at five, needs seven."""
    rise = finished.experiment.claims[0]
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2, 3, 4})
    unsure = dataclasses.replace(found(rise, 0.11, 5.0, -4.7), suggested_by=(0, 3))
    assert settle.step("small", finished, [unsure], Second()).seeds == 7
    none = Finding(rise, "not run", suggested_by=(0, 3))
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 3})
    asked = settle.step("small", finished, [none], Second())
    assert (asked.seeds, [run.seed for run in asked.runs]) == (5, [0, 1, 2, 3, 4])
    assert asked.worth == pytest.approx(settle.FIRST_DECIDES * 3600 / 3)
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2, 3})
    read = quantities.from_grids(finished, rise, [0, 3, 9])
    assert (read.seeds, read.suggested_by) == ([1, 2], [0, 3])


def test_seeds_that_were_passed_over_do_not_count_for_the_next_look(finished, monkeypatch):
    """Three seeds with a value among four: the look at five needs the six first."""
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2, 3})
    rise = finished.experiment.claims[0]
    open_ = dataclasses.replace(found(rise, 0.1, 0.6, 1.1), passed=(1,))
    assert settle.step("small", finished, [open_], Second()).seeds == 6


def test_a_first_look_is_not_taken_for_a_verdict(finished, monkeypatch):
    """A claim that is near its verdict goes before three seeds that may bring one, though five are told."""
    rise = finished.experiment.claims[0]
    asked = settle.step("small", finished, [Finding(rise, "not run")], Second())
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2})
    open_claim = found(rise, 0.2, 0.5, 0.8)
    assert open_claim.more == 5
    assert settle.FIRST < open_claim.prospect.price < settle.FIRST / settle.FIRST_DECIDES
    assert settle.step("small", finished, [open_claim], Second()).worth > asked.worth


def test_an_analysis_is_asked_of_what_its_open_claims_hang_on(finished, monkeypatch):
    """The baseline is asked always: references stand beside it. Claims about something else hang on all variants."""
    rise, better, _ = finished.experiment.claims
    made = replace(finished.experiment, analysis="saturation", variants=[*finished.experiment.variants, THIRD])
    finished.experiment = made
    finished.specs["third"] = made.spec(THIRD, "smoke")
    assert finished.variants_for([rise]) == ["softmax"]
    assert finished.variants_for([better]) == ["softmax", "wide"]
    third = replace(rise, left=replace(rise.left, of="third"), right=replace(rise.right, of="third"))
    assert finished.variants_for([third]) == ["softmax", "third"]
    finished.experiment = replace(made, baseline="wide")
    assert finished.variants_for([third]) == ["softmax", "wide", "third"]  # the first, too, beside which references are
    finished.experiment = made
    assert finished.variants_for([replace(rise, left=replace(rise.left, of="log"))]) == ["softmax", "wide", "third"]
    asked = []
    step = settle.step("small", finished, [Finding(third, "not run")], Second(), lambda part: asked.append(part))
    assert (step.variants, len(step.runs)) == (("softmax", "third"), 6)
    assert [variant.name for variant in asked[0].variants] == ["softmax", "third"]
    assert step.worth == pytest.approx(settle.FIRST_DECIDES * 3600 / 6)


def test_a_model_whose_test_says_whether_it_has_learned_is_missing_until_it_is_tested(finished, monkeypatch):
    """Unless it was asked before: then its claims have a number, and no run is tested for their sake alone."""
    rise = finished.experiment.claims[0]
    finished.experiment = replace(finished.experiment, analysis="saturation", claims=[rise])
    monkeypatch.setattr(Run, "trained", True)

    def step(before=None):
        return settle.step("small", finished, [Finding(rise, "not run")], Second(), lambda part: before)

    assert [run.seed for run in step().runs] == [0, 1, 2]
    assert step(AskedBefore(0)).runs == step().runs[1:]
    finished.experiment = replace(finished.experiment, claims=[replace(rise, ungated="it is about those")])
    assert step().runs == ()


def test_seeds_are_spent_where_they_decide_soonest(finished, monkeypatch):
    rise = finished.experiment.claims[0]
    monkeypatch.setattr(Finished, "seeds", lambda self, of: {0, 1, 2})
    soon, late = found(rise, 0.4, 0.5, 0.6), found(rise, 0.0, 0.5, 1.0)
    late, soon, slow = (
        settle.step("small", finished, [one], costs)
        for one, costs in ((late, Second()), (soon, Second()), (soon, Second(100.0)))
    )
    assert soon.worth > late.worth > slow.worth


@pytest.mark.slow
def test_settle_trains_judges_writes_and_has_nothing_left_to_do(run, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    asked = ("settle", "small", "--preset", "smoke", "--experiments", str(tmp_path), "--budget", "5m")
    code, out, err = run(*asked, "--dry-run")
    assert (code, out.splitlines()[0]) == (
        0,
        "small: to 3 seeds for 3 open claims, 6 runs, about 1 s",
    ) or "6 runs" in out
    code, out, err = run(*asked)
    assert code == 0, err
    (ledger,) = tmp_path.rglob("ledger-smoke.csv")
    rows = {row["claim"]: row for row in csv.DictReader(io.StringIO(ledger.read_text()))}
    assert rows["Errors rise"]["verdict"] == "not learned"  # sixty steps
    assert rows["Errors rise"]["seeds"] == "0 1 2"
    assert rows["Of cells that nobody measured"]["verdict"] == "not run"
    assert "small: to 3 seeds for 3 open claims, 6 runs" in err
    code, out, err = run(*asked)
    assert code == 0
    assert "to do" not in err
    code, out, err = run("settle", "small", "--preset", "smoke,nano", *asked[4:])
    assert code == 0, err
    assert "small at nano: to 3 seeds for 3 open claims, 6 runs" in err
    assert {path.name for path in tmp_path.rglob("ledger-*.csv")} == {"ledger-smoke.csv", "ledger-nano.csv"}
    hints = [line.split()[1:5] for line in out.splitlines() if line.startswith("next: ")]
    assert hints == [["icl-lab", "claims", "--preset", preset] for preset in ("smoke", "nano")]
    assert all(f"at {preset}." in out for preset in ("smoke", "nano"))


@pytest.mark.slow
def test_with_once_a_claim_that_another_preset_has_decided_takes_no_seed(run, tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    judged = claims.stored

    def stored(name, files, store, preset, costs=None):
        made, said, findings = judged(name, files, store, preset, costs)
        decided = found(findings[0].claim, 1.0, 1.01, 0.99)
        return made, said, [decided, *findings[1:]] if preset == "nano" else findings

    monkeypatch.setattr(claims, "stored", stored)
    monkeypatch.setattr(Store, "has", lambda self, preset: preset == "nano")
    asked = ("settle", "small", "--preset", "smoke", "--experiments", str(tmp_path), "--dry-run")
    assert run(*asked)[1].startswith("small: to 3 seeds for 3 open claims, 6 runs")
    assert run(*asked, "--once")[1].startswith("small: to 3 seeds for 2 open claims, 6 runs")


@pytest.fixture
def two_scales(run, tmp_path, monkeypatch):
    """Asks what is to be done for two claims of the small experiment at two scales.

    A training takes 100 s at `smoke`, and 110 s at `nano`.

    At `smoke` the first has three seeds, 21 more would decide it, and the second is hopeless. At `nano` the first is
    decided, and the second not run.
    """
    (tmp_path / "small.toml").write_text(SMALL)
    judged = claims.stored

    def stored(name, files, store, preset, costs=None):
        made, said, (first, second, _) = judged(name, files, store, preset, costs)
        if preset == "nano":
            return made, said, [found(first.claim, 1.0, 1.01, 0.99), second]
        return made, said, [found(first.claim, -0.2, 0.5, 1.2), found(second.claim, *[0.11, 5.0, -4.7] * 8)]

    monkeypatch.setattr(claims, "stored", stored)
    monkeypatch.setattr(settle, "_have", lambda finished, finding: len(finding.seeds))
    monkeypatch.setattr(Costs, "training", lambda self, spec: {"smoke": 100.0, "nano": 110.0}[spec.preset])
    monkeypatch.setattr(Costs, "test", lambda self, spec: 0.0)

    def asked(*words):
        code, out, err = run("settle", "small", "--experiments", str(tmp_path), "--dry-run", *words)
        assert code == 0, err
        return [line.partition(", ")[0] for line in out.splitlines()]

    return asked


def test_of_several_presets_the_step_that_decides_soonest_comes_first(two_scales):
    nano, smoke = "small at nano: to 3 seeds for 1 open claim", "small at smoke: to 5 seeds for 1 open claim"
    assert two_scales("--preset", "smoke,nano") == [nano, smoke]
    assert two_scales("--preset", "smoke, nano,smoke", "--once") == [nano]
    assert two_scales("--preset", "smoke") == ["small: to 5 seeds for 1 open claim"]


def test_a_step_that_the_time_left_allows_comes_before_one_that_decides_more(two_scales):
    """500 s at `smoke` and 660 s at `nano`, of one core."""
    nano, smoke = "small at nano: to 3 seeds for 1 open claim", "small at smoke: to 5 seeds for 1 open claim"
    asked = ("--preset", "smoke,nano", "--budget")
    assert two_scales(*asked, "550s") == [smoke, nano]
    assert two_scales(*asked, "550s", "--jobs", "2") == [nano, smoke]
    assert two_scales(*asked, "400s") == [nano, smoke]  # neither


@pytest.mark.parametrize("asked", ["nano,large", "", ","])
def test_a_preset_that_does_not_exist_is_named(run, asked):
    code, _, err = run("settle", "--preset", asked, "--dry-run")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "nano" in err


@pytest.mark.slow
def test_when_the_time_is_up_it_says_so_and_the_same_command_goes_on(run, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL.replace("train.steps=60", "train.steps=4000"))
    asked = ("settle", "small", "--preset", "smoke", "--experiments", str(tmp_path))
    code, out, err = run(*asked, "--budget", "3s")
    assert code == 0
    assert "the time is up (3 s); the same command goes on." in err
    assert list(tmp_path.rglob("checkpoint.pt"))
    assert "NOT RUN" in out
    _, _, err = run(*asked, "--budget", "3s")
    assert "goes on from step" in err


def test_what_is_no_time_and_no_experiment_is_said(run, tmp_path):
    code, _, err = run("settle", "--budget", "soon")
    assert code == 2
    assert "'soon' is no time such as 90m, 3h or 1.5h." in err
    code, _, err = run("settle", "ssa-tabel1")
    assert code == 2
    assert "Did you mean 'ssa-table1'" in err


@pytest.mark.slow
def test_what_is_finished_when_the_time_is_up_is_judged(run, tmp_path, monkeypatch):
    """A claim may have all its runs before the others have."""
    (tmp_path / "small.toml").write_text(SMALL)
    commanded = importlib.import_module("icl_lab.cli.commands.settle")
    whole = commanded.complete

    def part(runs, lab, order, **more):
        whole([run for run in runs if run.spec.attn == "softmax"], lab, order, **more)
        raise Stopped("the time is up")

    monkeypatch.setattr(commanded, "complete", part)
    code, out, err = run("settle", "small", "--preset", "smoke", "--experiments", str(tmp_path))
    assert (code, "the same command goes on" in err) == (0, True)
    rise, _, other = (line.partition(" small: ")[0].strip() for line in out.splitlines()[:3])
    assert rise != "NOT RUN"
    assert other == "NOT RUN"


@pytest.mark.slow
def test_the_models_that_an_analysis_asks_are_tested_so_that_it_is_known_whether_they_have_learned(run, tmp_path):
    (tmp_path / "tiny.toml").write_text(ANALYSED.partition("ungated")[0])
    code, _, err = run("settle", "tiny", "--preset", "smoke", "--experiments", str(tmp_path), "--budget", "5m")
    assert code == 0, err
    assert len(list((tmp_path / "results" / "runs").rglob("grid.csv"))) == 3
    (ledger,) = tmp_path.rglob("ledger-smoke.csv")
    (row,) = csv.DictReader(io.StringIO(ledger.read_text()))
    assert row["verdict"] == "not learned"  # thirty steps
