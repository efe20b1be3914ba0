"""``experiment --until-decided``: the loop, which reports each decision."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from icl_lab.base.errors import Stopped
from icl_lab.claims import experiment as experiments
from icl_lab.cli.hints import then
from icl_lab.cli.output import out
from icl_lab.execute.announce import duration
from icl_lab.execute.experiment import UntilDecided, chosen
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where


def decide(name: str, preset: str, variants: Sequence[str], budget: float, where: Where) -> None:
    """Give an experiment seeds until its claims are decided or ``budget`` seconds are over."""
    folder = experiments.place(Path(where.experiments))
    made, left_out = chosen(name, preset, (), variants, folder)
    with where.session() as lab:
        for line in left_out:
            say(line)
        _look_until(UntilDecided(name, made, preset, folder, lab), where, budget)


def _look_until(experiment: UntilDecided, where: Where, budget: float) -> None:
    lab, end = experiment.lab, time.monotonic() + budget
    # The budget ends what takes long, and tables are shown at the end.
    late = replace(
        lab,
        stopping=lambda: lab.stopping() or time.monotonic() > end,
        longest=math.inf,
        show=lambda text: None,
    )
    say(f"{experiment.summary()}; at most {duration(budget)}")
    while (step := experiment.next()) is not None:
        if where.dry_run:
            out(experiment.described(step))
            return
        say(experiment.described(step))
        try:
            decided = experiment.take(step, late, where)
        except Stopped:
            if lab.stopping():
                raise
            experiment.look()  # what was finished by now
            say(f"the time is up ({duration(budget)}); the same command goes on.")
            changes: dict[str, list[str]] = {}
            break
        for finding in decided:
            say(f"{finding.claim}: {finding.marked}")
        say(experiment.summary())
    else:  # its tables and figures
        seeds = max((len(finding.seeds) for finding in experiment.findings), default=0)
        changes = {"--until-decided": [], "--budget": [], "--seeds": [str(max(1, seeds))]}
    out(experiment.text())
    out(f"{experiment.summary()}.")
    out(f"next: {then('experiment', changes)}")
