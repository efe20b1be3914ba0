"""The command that does published results again."""

from typing import Any

import click

import icl_lab as icl
from icl_lab.base.markdown import listed
from icl_lab.cli.hints import then
from icl_lab.cli.options import (
    budget_option,
    crowd_options,
    dry_run_option,
    experiments_option,
    gathered,
    over_option,
    retrain_option,
    seeds_option,
    tell_files,
    until_decided_option,
    where_options,
)
from icl_lab.cli.output import out
from icl_lab.execute.where import Where


@click.command()
@click.argument("name")
@where_options
@crowd_options
@seeds_option
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this one beside the baseline, and the claims about them; may be given again.",
)
@click.option("--overlay", is_flag=True, help="Show rows of doubtful columns a second time, moved, and say so.")
@experiments_option
@over_option
@retrain_option
@dry_run_option
@until_decided_option
@budget_option
@gathered
def experiment(name: str, until_decided: bool, budget: float | None, where: Where, **asked: Any) -> None:
    """Do a published table or figure again, with the printed numbers; trains missing runs.

    With --until-decided seeds are added in the steps at which claims are looked at (3, 5, 8, 12, .. 64), to the sides
    of claims that are open, until all are decided or the time of --budget is up; the same command goes on.
    """
    if budget is not None and not until_decided:
        raise click.UsageError("--budget is the time of --until-decided: add that.")
    if until_decided:
        refused = {"--seeds": asked["seeds"] > 1, "--set": asked["settings"], "--overlay": asked["overlay"]}
        refused |= {"--force": where.force, "--retrain": where.retrain, "--shard": where.shard[1] > 1}
        if wrong := [option for option, given in refused.items() if given]:
            raise click.UsageError(f"--until-decided gives the claims as they are seeds: leave out {listed(wrong)}.")
        from icl_lab.cli.until_decided import decide

        decide(name, asked["preset"], asked["variants"], budget or 3600.0, where)
        return
    done = icl.experiment(name, **asked, where=where)
    tell_files(done.folder, done.files)
    out(f"next: {then('claims')}   (what held and what did not, over all experiments)")
