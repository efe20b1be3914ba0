"""The command that says whether a normalizer is better than another one."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

import icl_lab as icl
from icl_lab.claims import card
from icl_lab.claims.ledger import RATES
from icl_lab.cli.hints import program
from icl_lab.cli.options import (
    crowd_options,
    dry_run_option,
    experiments_option,
    gathered,
    place_options,
    results_option,
    together,
)
from icl_lab.cli.output import out
from icl_lab.cli.values import several_rules
from icl_lab.execute.judge import Trial, judge_all
from icl_lab.execute.where import SEEDS, Where


@click.command()
@click.argument("rule", default="")
@click.option("--all", "every", is_flag=True, help="A table of all normalizers, from stored runs; trains nothing.")
@click.option(
    "--against", multiple=True, default=("softmax",), callback=several_rules, help="Baselines.  [default: softmax]"
)
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1, SEEDS), help="Of each question.")
@click.option("--only", multiple=True, metavar="QUESTION", help="Only this question, or those that begin so.")
@click.option("--rates", type=click.Choice(["shared", "own"]), default="shared", help="own: the best of stored curves.")
@click.option("--json", "as_json", is_flag=True, help="The card as JSON.")
@results_option
@experiments_option
@together(*place_options.values())
@crowd_options
@dry_run_option
@gathered
def judge(
    rule: str,
    every: bool,
    against: Sequence[str],
    seeds: int,
    only: Sequence[str],
    rates: str,
    as_json: bool,
    where: Where,
) -> None:
    """Is a normalizer better than softmax? A card: a verdict on each question of the suite; trains missing runs.

    RULE is a normalizer such as ssa or ssa:n=2, or one of your own after --import. The suite (docs/judge.md) is of
    preset nano. Runs that are stored count, and seeds are those that the baseline has.
    """
    if bool(rule) is every:
        raise click.UsageError("name one normalizer, such as: icl-lab judge ssa; or all: icl-lab judge --all.")
    if every:
        with where.session() as lab:
            found = judge_all(Trial("", against, seeds, only, rates), lab, where)
        if as_json:
            named = ((name, baseline, each) for baseline, all_of in found.items() for name, each in all_of.items())
            out(json.dumps([card.plain(row) for each in named for row in card.rows(*each)], indent=1))
            return
        suite = card.suite(Path(where.experiments), only)
        for baseline, answered in found.items():
            head = f"# Suite {suite.version}, preset {card.PRESET}, {RATES[rates]}: verdicts against {baseline}"
            out("\n".join([head, "", *card.table(answered, suite.questions), "", card.LEGEND]))
        return
    judged = icl.judge(rule, seeds=seeds, against=against, only=only, rates=rates, where=where)
    if as_json:
        out(judged.card.json())
        return
    out(str(judged), prose=True)
    if judged.card.onward:
        out(f"next: {judged.card.onward.replace('icl-lab', program(), 1)}")
