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
from icl_lab.errors import RunFailed, Stopped, UnknownName
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


def _scales(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    """Reads presets, separated by commas; one that is named twice counts once."""
    from icl_lab.runs.presets import PRESETS

    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in PRESETS:
            raise UnknownName("preset", name, list(PRESETS))
    return names


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--preset",
    "presets",
    default="lite",
    show_default=True,
    metavar="NAME,..",
    callback=_scales,
    help="The scale at which to decide; several: whichever decides soonest.",
)
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
    presets: list[str],
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
    enough. --preset nano,lite2 goes on with each claim at the scale that is expected to decide it soonest; without
    --once it is decided at both. With --shard, every part takes experiments of its own.
    """
    from icl_lab.papers import experiment, ledger
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
    elsewhere = ledger.decided(chosen, place, lab.store, set(PRESETS) - set(presets)) if once else set()
    # Parts that run at the same time write tables of their own.
    desks = [Desk(place, preset, lab, chosen, f"-{part}-of-{parts}" if parts > 1 else "") for preset in presets]
    failed: dict[tuple[Desk, str], str] = {}
    while True:
        # What is decided at one of these scales; a desk opens nothing that it has decided itself.
        left = elsewhere.union(*(desk.decided() for desk in desks)) if once else set()
        open_ = ((desk.step(name, left), desk) for desk in desks for name in chosen if (desk, name) not in failed)
        steps = [(step, desk) for step, desk in open_ if step is not None]
        steps.sort(key=lambda each: each[0].worth, reverse=True)
        told = [_told(step, desk.preset if len(desks) > 1 else "") for step, desk in steps]
        if dry_run:
            out("\n".join(told))
            return
        for desk in desks:
            desk.write()
        if not steps:
            break
        say(told[0])
        step, desk = steps[0]
        try:
            desk.take(step, late, how)
        except Stopped:
            if lab.stopping():
                raise
            say(f"the time is up ({duration(budget)}); the same command goes on.")
            break
        except RunFailed as error:  # the other experiments are none the worse
            failed[desk, step.experiment] = str(error)
            say(f"left: {step.experiment} ({error})")
    out("\n".join(desk.summary() for desk in desks))
    out(f"next: {then('claims')}")
    if failed:
        names_failed = ", ".join(dict.fromkeys(name for _, name in failed))
        raise RunFailed(f"runs of {names_failed} failed, see above; the same command tries them again.")


class Desk:
    """The state of a settlement at one scale: what every experiment has found by now, and what its runs take."""

    def __init__(self, files: Path, preset: str, lab: "Lab", names: Sequence[str], part: str) -> None:
        from icl_lab.papers.cost import Costs

        self.files, self.preset, self.lab, self.names = files, preset, lab, names
        self.place = lab.store.root / f"ledger-{preset}{part}.csv"
        self._costs = Costs(lab.store, preset, self._measured)
        self._known: dict[str, tuple[Finished, list[Finding]]] = {}
        self._asked: dict[str, Earlier | None] = {}
        self._taken_steps: set[tuple[str, int]] = set()  # what did not open a later look is not taken twice

    def decided(self) -> set[tuple[str, str]]:
        """The claims, (experiment, statement), that have a verdict here."""
        from icl_lab.papers.verdicts import DECIDED

        looked = ((name, each) for name in self.names for each in self._look(name)[1])
        return {(name, each.claim.statement) for name, each in looked if each.verdict in DECIDED}

    def step(self, name: str, left: Set[tuple[str, str]]) -> "Step | None":
        """Returns the next step of an experiment; None where nothing is open that seeds could decide.

        No seed is spent on the claims that are ``left``.
        """
        from icl_lab.papers import settle

        finished, found = self._look(name)
        found = [each for each in found if (name, each.claim.statement) not in left]
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


def _told(step: "Step", preset: str) -> str:
    claims = f"{len(step.claims)} open claim{'s' * (len(step.claims) > 1)}"
    cost = f"{len(step.runs)} runs, about {duration(step.seconds)}" if step.runs else "nothing to train"
    return f"{step.experiment}{preset and f' at {preset}'}: to {step.seeds} seeds for {claims}, {cost}"
