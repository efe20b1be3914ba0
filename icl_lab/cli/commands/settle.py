"""The command that spends seeds where they decide most."""

import re
import time
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.hints import then
from icl_lab.cli.launch import Order, complete, laboratory
from icl_lab.cli.options import (
    crowd_options,
    device_option,
    experiments_option,
    large_option,
    results_option,
    threads_option,
)
from icl_lab.cli.output import out
from icl_lab.cli.progress import say
from icl_lab.errors import RunFailed, Stopped
from icl_lab.launch.announce import Clock, duration
from icl_lab.launch.complete import check_sizes

if TYPE_CHECKING:
    from icl_lab.analyses.earlier import Earlier
    from icl_lab.papers.ledger import Entry
    from icl_lab.papers.quantities import Finished
    from icl_lab.papers.schema import Experiment
    from icl_lab.papers.settle import Step
    from icl_lab.papers.verdicts import Finding
    from icl_lab.runs.session import Lab
    from icl_lab.runs.spec import RunSpec

UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def _time(context: click.Context, option: click.Parameter, text: str) -> float:
    """Reads a time such as 90m, 3h or 1.5h."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|d)", text.strip())
    if not found or not float(found[1]):
        raise click.BadParameter(f"'{text}' is no time such as 90m, 3h or 1.5h.")
    return float(found[1]) * UNITS[found[2]]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--preset", default="lite", show_default=True, help="The scale at which to decide.")
@click.option("--budget", default="1h", show_default=True, metavar="TIME", callback=_time, help="When to stop: 3h.")
@results_option
@experiments_option
@device_option
@threads_option
@large_option
@crowd_options
@click.option("--once", is_flag=True, help="Leave claims that another preset has decided.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and train nothing.")
def settle(
    names: tuple[str, ...],
    preset: str,
    budget: float,
    results: Path,
    files: Path,
    device: str,
    threads: int | None,
    allow_large: bool,
    shard: tuple[int, int],
    once: bool,
    dry_run: bool,
    **order: Any,
) -> None:
    """Spend seeds where they decide claims soonest, until all are decided or the time is up; the same command goes on.

    NAMES are experiments; all, unless named. Claims are looked at after 3, 5, 8, 12, ... seeds, so that looking again
    and again cannot make a difference out of none. A verdict holds at its preset; with --once, one at any preset is
    enough. With --shard, every part takes experiments of its own.
    """
    from icl_lab.papers import experiment, ledger, settle
    from icl_lab.runs.presets import PRESETS

    place, end = experiment.place(files), time.monotonic() + budget
    how = Order.of(order | {"device": device, "threads": threads})
    for name in names:
        experiment.load(name, place)  # a wrong name is said before anything is trained
    part, parts = shard
    asked = list(names) or experiment.names(place)
    chosen = [name for number, name in enumerate(asked) if number % parts == part % parts]
    lab = laboratory(results, device, threads, allow_large=allow_large)
    late = replace(lab, stopping=lambda: lab.stopping() or time.monotonic() > end)
    others = [other for other in PRESETS if once and other != preset]
    left = ledger.decided(chosen, place, lab.store, others)
    # Parts that run at the same time write tables of their own.
    desk = Desk(place, preset, lab, chosen, f"-{part}-of-{parts}" if parts > 1 else "", left)
    failed: dict[str, str] = {}
    while True:
        steps = [step for name in chosen if name not in failed and (step := desk.step(name)) is not None]
        step = settle.best(steps)
        if dry_run:
            out("\n".join(_told(each) for each in sorted(steps, key=lambda step: -step.worth)))
            return
        desk.write()
        if step is None:
            break
        say(_told(step))
        try:
            desk.take(step, late, how)
        except Stopped:
            if lab.stopping():
                raise
            say(f"the time is up ({duration(budget)}); the same command goes on.")
            break
        except RunFailed as error:  # the other experiments are none the worse
            failed[step.experiment] = str(error)
            say(f"left: {step.experiment} ({error})")
    out(desk.summary())
    out(f"next: {then('claims')}")
    if failed:
        raise RunFailed(f"runs of {', '.join(failed)} failed, see above; the same command tries them again.")


class Desk:
    """The state of a settlement: what every experiment has found by now, and what its runs take."""

    def __init__(
        self, files: Path, preset: str, lab: "Lab", names: Sequence[str], part: str, left: Set[tuple[str, str]]
    ) -> None:
        from icl_lab.papers.cost import Costs

        self._left = left  # claims, (experiment, statement), that no seed is spent on
        self.files, self.preset, self.lab, self.names = files, preset, lab, names
        self.place = lab.store.root / f"ledger-{preset}{part}.csv"
        self._costs = Costs(lab.store, preset, self._measured)
        self._known: dict[str, tuple[Finished, list[Finding]]] = {}
        self._asked: dict[str, Earlier | None] = {}
        self._taken_steps: set[tuple[str, int]] = set()  # what did not open a later look is not taken twice

    def step(self, name: str) -> "Step | None":
        """Returns the next step of an experiment; None where nothing is open that seeds could decide."""
        from icl_lab.papers import settle

        finished, found = self._look(name)
        found = [each for each in found if (name, each.claim.statement) not in self._left]
        step = settle.step(name, finished, found, self._costs, lambda: self._before(finished.experiment, name))
        return None if step is None or (name, step.seeds) in self._taken_steps else step

    def take(self, step: "Step", lab: "Lab", order: Order) -> None:
        """Trains what the step lacks, asks the analysis of its experiment again, and forgets what it knew of it."""
        from icl_lab.launch.study import stages
        from icl_lab.papers import study

        finished, _ = self._known.pop(step.experiment)  # looked at again, where it is stopped on the way too
        made = finished.experiment
        for runs, tested in stages(step.runs, made.question()) if step.runs else ():
            complete(runs, lab, order, tested=tested)
        if made.question() is not None:
            groups = study.groups(made, lab.store, self.preset, step.seeds, ())
            asked = study.Order(step.experiment, self.preset)
            command = f"icl-lab experiment {step.experiment} --preset {self.preset} --seeds {step.seeds}"
            known = study.record(made, asked, groups, command)
            folder = study.destination(step.experiment, lab.store, self.preset, known)
            before = self._before(made, step.experiment)
            study.publish(made, asked, groups, replace(lab, command=command), folder, before)
            del self._asked[step.experiment]
        self._taken_steps.add((step.experiment, step.seeds))

    def entries(self) -> "list[Entry]":
        """The claims as they stand."""
        from icl_lab.papers.ledger import Entry, among

        looked = [(name, *self._look(name)) for name in self.names]
        paper = {name: finished.experiment.paper for name, finished, _ in looked}
        return among([Entry(name, paper[name], self.preset, each) for name, _, found in looked for each in found])

    def write(self) -> None:
        """Writes the ledger as it stands."""
        from icl_lab.files import write
        from icl_lab.papers.ledger import table_csv

        write(self.place, table_csv(self.entries()).encode())

    def summary(self) -> str:
        """What is decided by now, and what is open."""
        from icl_lab.papers.ledger import tally

        entries = self.entries()
        lines = [
            f"{entry.finding.verdict.upper():13} {entry.experiment}: {entry.finding.claim.statement}"
            + (f" ({entry.finding.outlook})" if entry.finding.outlook else "")
            for entry in entries
        ]
        return "\n".join([*lines, f"{tally(entries)} at {self.preset}.", f"wrote {self.place}"])

    def _before(self, made: "Experiment", name: str) -> "Earlier | None":
        from icl_lab.papers import study

        if name not in self._asked:
            first = study.groups(made, self.lab.store, self.preset, 1, ())
            self._asked[name] = study.asked_before(made, study.Order(name, self.preset), first, self.lab)
        return self._asked[name]

    def _look(self, name: str) -> "tuple[Finished, list[Finding]]":
        from icl_lab.papers import claims, quantities

        if name not in self._known:
            made, _, found = claims.stored(name, self.files, self.lab.store, self.preset, self._costs)
            self._known[name] = quantities.Finished(made, self.lab.store, self.preset), found
        return self._known[name]

    def _measured(self, spec: "RunSpec") -> float:
        """Seconds of one operation, by a few steps of a training that is done here for the first time."""
        from icl_lab.runs import size

        like = replace(self.lab.store, layer=None).run(spec, -1)  # a seed of which nothing is there
        check_sizes([like], self.lab, tested=False)
        return Clock(self.lab.device, tested=False)(like)[0] / size.trained(spec)


def _told(step: "Step") -> str:
    claims = f"{len(step.claims)} open claim{'s' * (len(step.claims) > 1)}"
    cost = f"{len(step.runs)} runs, about {duration(step.seconds)}" if step.runs else "nothing to train"
    return f"{step.experiment}: to {step.seeds} seeds for {claims}, {cost}"
