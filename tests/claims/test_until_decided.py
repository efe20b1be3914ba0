"""Seeds are added until claims are decided: the next step, and the command from nothing to verdicts."""

import importlib
import json
import math
import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from icl_lab.base.errors import Stopped
from icl_lab.claims import experiment
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Variant
from icl_lab.claims.sides import AnalysisSides, Sides
from icl_lab.cli import until_decided
from icl_lab.comparison.verdict import State
from icl_lab.execute.experiment import next_step
from icl_lab.runs.store import Store
from icl_lab.training import loop
from tests.claims import given
from tests.claims.test_experiments import SMALL
from tests.cli.test_report import ANALYSED

THIRD = Variant("third", "ssmax")
pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.fixture
def sides(tmp_path):
    """The small experiment, of which nothing has been run."""
    (tmp_path / "small.toml").write_text(SMALL)
    return Sides(experiment.load("small", tmp_path), Store(tmp_path / "results"), "smoke")


def found(claim, *differences):
    """What a claim has come to: log ratios of its sides, one a training seed."""
    left = [math.exp(value) for value in differences]
    return given.judged(claim, left, [1.0] * len(left))


def closed(claim, state=State.NOT_RUN, **fields):
    """A finding without an effect."""
    return Finding(claim=claim.statement, relation=claim.is_, state=state, **fields)


def test_claims_without_seeds_are_brought_to_their_first_look(sides):
    rise, better, _ = sides.experiment.claims
    step = next_step(sides, [closed(rise), closed(better)])
    assert (step.seeds, step.claims) == (3, (rise.statement, better.statement))
    assert step.variants == ("softmax", "wide")
    assert next_step(sides, [closed(rise)]).variants == ("softmax",)


def test_claims_with_the_fewest_seeds_come_first(sides):
    rise, better, _ = sides.experiment.claims
    ahead = found(rise, 0.0, 0.5, 1.0)  # 16 seeds would decide it
    assert next_step(sides, [ahead]).seeds == 5
    step = next_step(sides, [ahead, closed(better)])
    assert (step.seeds, step.claims) == (3, (better.statement,))


def test_decided_and_hopeless_claims_take_no_seed(sides):
    rise, _, missing = sides.experiment.claims
    decided = found(rise, 1.0, 1.01, 0.99)
    assert decided.agrees is True
    hopeless = found(rise, *[0.11, 5.0, -4.7] * 8)
    assert hopeless.outlook == "more than 64 seeds"
    over = [decided, hopeless, closed(missing, note="no cell"), closed(rise, State.NOT_LEARNED)]
    assert next_step(sides, over) is None


def test_after_the_last_look_the_plan_ends(sides):
    rise = sides.experiment.claims[0]
    for seeds, step in ((48, 64), (64, None)):
        unsure = replace(found(rise, 0.0, 0.5, 1.0), seeds=tuple(range(seeds)), chance=1.0)
        told = next_step(sides, [unsure])
        assert step == (told and told.seeds)


def test_three_seeds_that_would_never_decide_leave_a_chance(sides):
    """Effect and deviation of so few may be others: the claim is asked again."""
    unsure = found(sides.experiment.claims[0], 0.11, 5.0, -4.7)
    assert unsure.outlook == "probably more than 64 seeds"
    assert next_step(sides, [unsure]).seeds == 5


def test_seeds_that_suggested_a_claim_do_not_count_for_it(sides):
    """Five seeds of which two led to it are a first look; the next, at five, needs seven."""
    rise = sides.experiment.claims[0]
    unsure = replace(found(rise, 0.11, 5.0, -4.7), left_out=(0, 3))
    assert next_step(sides, [unsure]).seeds == 7
    assert next_step(sides, [closed(rise, left_out=(0, 3))]).seeds == 5
    assert next_step(sides, [replace(found(rise, 0.1, 0.6, 1.1), skipped=(1,))]).seeds == 6


def test_an_analysis_is_asked_of_what_its_open_claims_hang_on(sides):
    """The baseline is asked always: references stand beside it. Claims about something else hang on all variants."""
    rise, better, _ = sides.experiment.claims
    three = [*sides.experiment.variants, THIRD]

    def asked(*claims, baseline="softmax"):
        made = replace(sides.experiment, analysis="saturation", variants=three, baseline=baseline)
        return AnalysisSides(made, sides.store, "smoke").variants_for(claims)

    assert asked(rise) == ["softmax"]
    assert asked(better) == ["softmax", "wide"]
    third = replace(rise, left=replace(rise.left, of="third"), right=replace(rise.right, of="third"))
    assert asked(third) == ["softmax", "third"]
    assert asked(third, baseline="wide") == ["softmax", "wide", "third"]  # the first, too, beside which references are
    assert asked(replace(rise, left=replace(rise.left, of="log"))) == ["softmax", "wide", "third"]
    made = replace(sides.experiment, analysis="saturation", variants=three, claims=[third])
    assert next_step(AnalysisSides(made, sides.store, "smoke"), [closed(third)]).variants == ("softmax", "third")


@pytest.fixture
def ask(run, tmp_path):
    """Ask for seeds for the experiment of a text."""

    def until_decided(*words, text=SMALL, name="small"):
        (tmp_path / f"{name}.toml").write_text(text)
        here = ("--preset", "smoke", "--results", str(tmp_path / "results"), "--experiments", str(tmp_path))
        return run("experiment", name, "--until-decided", *here, *words)

    return until_decided


@pytest.mark.slow
def test_it_trains_and_judges_and_has_nothing_left_to_do(ask, tmp_path):
    code, out, _ = ask("--dry-run")
    assert (code, out) == (0, "small: to 3 seeds of softmax, wide, for 3 open claims\n")
    assert not list(tmp_path.rglob("spec.json"))
    code, out, err = ask("--budget", "5m")
    assert code == 0, err
    assert err.splitlines()[0] == "0 of 3 claims decided at smoke; at most 5 min"
    assert "small: to 3 seeds of softmax, wide, for 3 open claims" in err
    assert "  Errors rise (here)\n    not learned | ratio" in out  # sixty steps
    assert "  Of cells that nobody measured (here)\n    not run |" in out
    assert re.search(r"next: .*experiment small .*--seeds 3", out)
    assert "--until-decided" not in out
    code, out, err = ask()
    assert (code, "to 3 seeds" in err, "  Errors rise (here)\n    not learned | ratio" in out) == (0, False, True)
    code, _, err = ask("--variant", "softmax", "--dry-run")
    assert (code, err.splitlines()[0]) == (0, "0 of 1 claims decided at smoke; at most 60 min")


def test_what_was_decided_is_said_between_steps(ask, monkeypatch):
    """Two claims; the first step decides one, the second none: it opens no later look, and is not taken again."""
    made = iter([(), (1.0, 1.01, 0.99), (1.0, 1.01, 0.99)])
    finishes = []

    def stored(whole, store, preset):
        (rise, better, _), now = whole.claims, next(made)
        return [], [found(rise, *now) if now else closed(rise), found(better, 0.0, 0.5, 1.0)]

    monkeypatch.setattr("icl_lab.claims.judge.stored", stored)
    commanded = importlib.import_module("icl_lab.execute.experiment")
    monkeypatch.setattr(commanded, "complete", lambda runs, *given, **how: finishes.append(len(runs)) or True)
    code, out, err = ask()
    assert code == 0, err
    assert finishes == [3, 10]  # three seeds of one variant, five of two
    assert err.splitlines() == [
        "0 of 2 claims decided at smoke; at most 60 min",
        "small: to 3 seeds of softmax, for 1 open claim",
        "Errors rise: above; more than a quarter",
        "1 of 2 claims decided at smoke",
        "small: to 5 seeds of softmax, wide, for 1 open claim",
        "1 of 2 claims decided at smoke",
    ]
    assert "about 13 more seeds would decide it" in out


@pytest.mark.exhaustive
def test_out_of_time_the_same_command_goes_on(ask, tmp_path, monkeypatch):
    """The time passes with the steps of a training alone, however slow the machine is."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(until_decided, "time", SimpleNamespace(monotonic=lambda: clock.now))
    step = loop.advance

    def timed(*given):
        clock.now += 0.5
        return step(*given)

    monkeypatch.setattr(loop, "advance", timed)
    long = SMALL.replace("train.steps=60", "train.steps=4000")
    code, out, err = ask("--budget", "1s", text=long)
    assert code == 0
    assert "the time is up (1 s); the same command goes on." in err
    assert list(tmp_path.rglob("checkpoint.pt"))
    assert "not run | smoke" in out
    assert re.search(r"next: .*--until-decided", out)
    assert "goes on from step 3" in ask("--budget", "1s", text=long)[2]


@pytest.mark.exhaustive
def test_what_is_finished_when_the_time_is_up_is_judged(ask, monkeypatch):
    """A claim may have all its runs before the others have."""
    commanded = importlib.import_module("icl_lab.execute.experiment")
    whole = commanded.complete

    def part(runs, lab, where, **more):
        whole([run for run in runs if run.spec.attn == "softmax"], lab, where, **more)
        raise Stopped("the time is up")

    monkeypatch.setattr(commanded, "complete", part)
    code, out, err = ask()
    assert (code, "the same command goes on" in err) == (0, True)
    assert "  Errors rise (here)\n    not learned | ratio" in out
    assert "  Of cells that nobody measured (here)\n    not run |" in out


@pytest.mark.exhaustive
def test_an_analysis_is_asked_and_its_models_are_tested(ask, tmp_path):
    """So that it is known whether they have learned."""
    code, out, err = ask("--budget", "5m", text=ANALYSED.partition("ungated")[0], name="tiny")
    assert code == 0, err
    assert len(list((tmp_path / "results" / "runs").rglob("grid.csv"))) == 3
    assert "not learned |" in out  # thirty steps
    (record,) = (tmp_path / "results" / "experiments").rglob("study.json")
    assert json.loads(record.read_text())["command"].startswith("icl-lab experiment tiny --preset smoke --seeds 3")


def test_what_does_not_go_with_it_is_said(ask, run):
    code, _, err = ask("--seeds", "3", "--set", "train.steps=5", "--shard", "1/2")
    assert (code, err.splitlines()[-1].endswith("leave out --seeds, --set and --shard.")) == (2, True)
    code, _, err = ask("--budget", "soon")
    assert (code, "'soon' is no time such as 90m, 3h or 1.5h." in err) == (2, True)
    assert "--budget is the time of --until-decided" in run.refused("experiment", "ssa-table1", "--budget", "3h")[1]
