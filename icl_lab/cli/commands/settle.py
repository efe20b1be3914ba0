"""The command that spends seeds where they decide most."""

import re
import time
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
from icl_lab.launch.announce import duration

if TYPE_CHECKING:
    from icl_lab.papers.settle import Step

UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def _time(context: click.Context, option: click.Parameter, text: str) -> float:
    """Reads a time such as 90m, 3h or 1.5h."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|d)", text.strip())
    if not found or not float(found[1]):
        raise click.BadParameter(f"'{text}' is no time such as 90m, 3h or 1.5h.")
    return float(found[1]) * UNITS[found[2]]


def _scales(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    """Reads presets, separated by commas; one that is named twice counts once."""
    from icl_lab.runs import presets

    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        presets.named(name)
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
    from icl_lab.launch.settlement import Settlement
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
    own = f"-{part}-of-{parts}" if parts > 1 else ""
    scales = [Settlement(place, preset, lab, chosen, own) for preset in presets]
    failed: dict[tuple[Settlement, str], str] = {}
    while True:
        left = elsewhere.union(*(scale.decided() for scale in scales)) if once else set()
        tried = ((scale, name) for scale in scales for name in chosen if (scale, name) not in failed)
        steps = [(step, scale) for scale, name in tried if (step := scale.step(name, left)) is not None]
        rest = (end - time.monotonic()) * (how.jobs or 1)  # seconds of one core; what they allow comes first
        steps.sort(key=lambda each: (how.remote or each[0].seconds <= rest, each[0].worth), reverse=True)
        told = [_told(step, scale.preset if len(scales) > 1 else "") for step, scale in steps]
        if dry_run:
            out("\n".join(told))
            return
        for scale in scales:
            scale.write()
        if not steps:
            break
        say(told[0])
        step, scale = steps[0]
        try:
            scale.take(step, late, lambda runs, tested: complete(runs, late, how, tested=tested))
        except Stopped:
            if lab.stopping():
                raise
            say(f"the time is up ({duration(budget)}); the same command goes on.")
            break
        except RunFailed as error:  # the other experiments are none the worse
            failed[scale, step.experiment] = str(error)
            say(f"left: {step.experiment} ({error})")
    out("\n".join(scale.summary() for scale in scales))
    for preset in presets:
        out(f"next: {then('claims', {'--preset': [preset]})}")
    if failed:
        names_failed = ", ".join(dict.fromkeys(name for _, name in failed))
        raise RunFailed(f"runs of {names_failed} failed, see above; the same command tries them again.")


def _told(step: "Step", preset: str) -> str:
    claims = f"{len(step.claims)} open claim{'s' * (len(step.claims) > 1)}"
    cost = f"{len(step.runs)} runs, about {duration(step.seconds)}" if step.runs else "nothing to train"
    return f"{step.experiment}{preset and f' at {preset}'}: to {step.seeds} seeds for {claims}, {cost}"
