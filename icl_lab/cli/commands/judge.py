"""The command that says whether a normalizer is better than another one."""

from pathlib import Path
from typing import Any

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
@click.option("--all", "whole", is_flag=True, help="A table of all normalizers, from stored runs; trains nothing.")
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
def judge(rule: str, whole: bool, as_json: bool, where: Where, **asked: Any) -> None:
    """Judge a normalizer against softmax, question by question: a card; trains missing runs.

    RULE is a normalizer such as ssa or ssa:n=2, or yours after --import. The suite (docs/judge.md) is of
    preset nano. Runs that are stored count, and seeds are those that the baseline has.
    """
    if bool(rule) is whole:
        raise click.UsageError("name one normalizer, such as: icl-lab judge ssa; or all: icl-lab judge --all.")
    if whole:
        with where.session() as lab:
            found = judge_all(Trial("", **asked), lab, where)
        if as_json:
            named = ((name, baseline, each) for baseline, all_of in found.items() for name, each in all_of.items())
            out(card.encoded([row for each in named for row in card.rows(*each)]))
        for baseline, answered in found.items() if not as_json else ():
            suite = card.suite(Path(where.experiments), asked["only"])
            out("\n".join(card.table(answered, baseline, RATES[asked["rates"]], suite)))
        return
    judged = icl.judge(rule, **asked, where=where)
    out(judged.card.json() if as_json else str(judged), prose=not as_json)
    if judged.card.onward and not as_json:
        out(f"next: {judged.card.onward.replace('icl-lab', program(), 1)}")
