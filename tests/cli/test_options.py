"""Options: lists of numbers and of normalizers, and the plan and the place that options become."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from icl_lab.cli.options import crowd_options, gathered, of_group, run_options, together
from icl_lab.cli.values import Numbers, several_rules, several_settings
from icl_lab.execute.complete import finish
from icl_lab.execute.parallel import WorkItem
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.where import Where, option
from icl_lab.runs.spec import resolve


@pytest.mark.parametrize("text", ["nan", "1,inf", "-inf", "1e999", "1,,2", "", "1,two", "1_0", "\u0663", "5,101"])
def test_a_list_of_numbers_holds_finite_ones_within_its_bounds(text):
    with pytest.raises(click.BadParameter, match="is not a list of numbers from -5 to 100 with commas between"):
        Numbers(float, -5, 100)(text)


@pytest.mark.parametrize("text", ["1.5", "1e2", "0", "2,11", "\u00b2"])
def test_a_list_of_whole_numbers_holds_whole_ones(text):
    with pytest.raises(click.BadParameter, match="is not a list of whole numbers from 1 to 10 with commas between"):
        Numbers(int, 1, 10)(text)


def test_lists_are_read():
    assert Numbers(float, -5, 1000)("1,-2.5, 3e2,1") == (1.0, -2.5, 300.0)
    assert Numbers(int, 1, 1000)("64, 128") == (64, 128)
    assert Numbers(int, 1, 1000, empty=True)("") == ()


@pytest.mark.parametrize(
    ("several", "given", "values"),
    [
        (several_rules, ["softmax ssa:n=2,b=1"], ("softmax", "ssa:n=2,b=1")),
        (several_rules, ["softmax, ssa:n=2, b=1,log-n"], ("softmax", "ssa:n=2, b=1", "log-n")),
        (several_rules, ["ssmax:s=swap , log-n", "l1:c=0.1,d=8"], ("ssmax:s=swap", "log-n", "l1:c=0.1,d=8")),
        (several_settings, ["train.steps=20  test.axes.sigma=1, 2"], ("train.steps=20", "test.axes.sigma=1, 2")),
        (several_settings, [" a.b=x y "], ("a.b=x y",)),
    ],
)
def test_an_option_takes_several_values_in_a_row(several, given, values):
    assert several(None, None, given) == values


def test_options_together_stand_in_their_order():
    names = ["--first", "--second", "--third"]
    command = click.command()(together(*map(click.option, names))(lambda **words: None))
    assert [parameter.opts[0] for parameter in command.params] == names


@pytest.fixture
def asked():
    """A command that takes a plan and a place; returns what it was handed for some words."""

    def call(*words):
        handed = {}

        @click.command()
        @run_options
        @crowd_options
        @click.option("--swap", default="")
        @click.option("--name", default="")
        @click.option("--mine", default="")
        @gathered
        def command(plan, where, mine):
            handed.update(plan=plan, where=where, mine=mine)

        command.main([*words], standalone_mode=False)
        return handed

    return call


def test_options_become_a_plan_and_a_place(asked):
    words = ["--task", "linear", "--attn", "ssa softmax", "--seeds", "2", "--swap", "ssmax", "--draws", "paper"]
    words += ["--set", "train.steps=5 model.layers=1", "--results", "there", "--jobs", "3", "--retrain"]
    handed = asked(*words, "--no-evidence", "--shard", "2/4", "--name", "n", "--mine", "x")
    settings = ["train.steps=5", "model.layers=1", "draws=paper"]
    assert handed["plan"] == RunPlan("linear", ("ssa", "softmax"), "lite", settings, range(2), "ssmax")
    assert handed["mine"] == "x"
    where = handed["where"]
    assert (where.root, where.jobs, where.retrain, where.evidence) == (Path("there"), 3, True, False)
    assert (where.shard, where.name, where.dry_run) == ((2, 4), "n", False)
    assert where.reporter.command.startswith("icl-lab")


def test_what_does_not_go_together_is_said_with_the_usage(asked):
    with pytest.raises(click.UsageError, match="add --engine ray"):
        asked("--task", "linear", "--attn", "ssa", "--address", "auto")


def test_a_name_that_a_command_takes_itself_is_no_folder():
    handed = {}

    @click.command()
    @click.argument("name")
    @gathered
    def command(name, where):
        handed.update(name=name, where=where)

    command.main(["fig3"], standalone_mode=False)
    assert (handed["name"], handed["where"].name) == ("fig3", "")


@dataclass(frozen=True, kw_only=True)
class More(Where):
    """Where with two further fields."""

    patience: int | None = option(None, "Minutes to wait.", "runs", least=1, most=90, usual="none")
    eager: bool = option(False, "Begin at once.", "place")


def test_a_new_field_of_where_is_an_option_that_travels(tmp_path):
    """One edit: the field. The command line reads it, and a worker gets it with the rest."""

    @click.command()
    @together(*of_group("runs", More).values(), *of_group("place", More).values())
    def mine(**words):
        words["jobs"] = None if words["jobs"] == "auto" else words["jobs"]
        given.append(More(**words, results=tmp_path))

    given = []
    context = mine.make_context("mine", ["--patience", "5", "--eager", "--shard", "1/3"])
    mine.invoke(context)
    item = WorkItem(spec=resolve("linear", "ssa", "smoke"), seed=0, finish=finish, where=given[0])
    there = pickle.loads(pickle.dumps(item)).where
    assert (there.patience, there.eager, there.shard, there.root) == (5, True, (1, 3), tmp_path)
    with pytest.raises(click.BadParameter, match="1<=x<=90"):
        mine.make_context("mine", ["--patience", "0"])
    assert "Minutes to wait.  [default: none]" in mine.get_help(context)
