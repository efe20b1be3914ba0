"""Commands that look into trained models."""

from collections.abc import Sequence
from typing import Any

import click

from icl_lab.cli.launch import models
from icl_lab.cli.options import model_options, numbers, tell, wholes


@click.command()
@model_options
@click.option("--length", type=click.IntRange(min=1), help="Tokens of a prompt.  [default: 8 training lengths]")
@click.option("--trials", default=100, show_default=True, type=click.IntRange(min=2), help="Prompts.")
def needle(task: str, length: int | None, trials: int, **where: Any) -> None:
    """Score every head by the attention that it pays to the needle; trains what is missing."""
    from icl_lab.analyses import needles
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    runs, lab = models(task=task or "needle", **where)
    for run in runs:
        needles.check(run.spec, length)
    found = needles.search(by_rule(runs), lab, length, trials)
    spec = runs[0].spec
    folder = lab.store.root / f"needle-scores-{filename(spec.task)}-{spec.preset}"
    text, files = needles.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "needle.png")


@click.command("fading")
@model_options
@click.option("--lengths", default="", help="Examples of a prompt, e.g. 64,128.  [default: 1/2 to 16 training lengths]")
@click.option("--prompts", default=64, show_default=True, type=click.IntRange(min=2), help="Prompts at each length.")
def fading_(lengths: str, prompts: int, **where: Any) -> None:
    """Follow the attention of every head as prompts grow, and say what the rules learned; trains what is missing."""
    from icl_lab.analyses import fadings
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    runs, lab = models(**where)
    spec = runs[0].spec
    tokens = fadings.lengths_of(spec, wholes(lengths, "--lengths"))
    found = fadings.follow(by_rule(runs), lab, tokens, prompts)
    folder = lab.store.root / f"fading-{filename(spec.task)}-{spec.preset}"
    text, files = fadings.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "fading.png")


@click.command()
@model_options
def law(attns: tuple[str, ...], **where: Any) -> None:
    """Fit laws of n to the free-form factor that ssmax-free has learned; trains what is missing."""
    from icl_lab.analyses import laws
    from icl_lab.registry import filename

    runs, lab = models(attns=attns or ("ssmax-free",), **where)
    for run in runs:
        laws.check(run.spec)
    spec = runs[0].spec
    found = laws.learn(runs, lab)
    folder = lab.store.root / f"law-{filename(spec.task)}-{spec.preset}"
    text, files = laws.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "law.png")


@click.command()
@model_options
@click.option("--position", default=0, show_default=True, type=click.IntRange(min=0), help="Index of the number.")
@click.option("--factors", default="", help="What it is multiplied by, from 1 on.  [default: 1 to 1,000]")
@click.option("--prompts", default=128, show_default=True, type=click.IntRange(min=2), help="Test prompts.")
def saturation(position: int, factors: str, prompts: int, **where: Any) -> None:
    """Let one number grow, see every head saturate, and test whether that is what spoils the answers."""
    from icl_lab.analyses import saturations
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    stretches = _growing(factors)
    runs, lab = models(**where)
    for run in runs:
        saturations.check(run.spec, position)
    found = saturations.stretch(by_rule(runs), lab, position, stretches, prompts)
    spec = runs[0].spec
    folder = lab.store.root / f"saturation-{filename(spec.task)}-{spec.preset}"
    text, files = saturations.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "saturation.png")


@click.command()
@model_options
@click.option("--position", default=0, show_default=True, type=click.IntRange(min=0), help="Index of the number.")
@click.option("--factors", default="", help="What it is multiplied by, from 1 on.  [default: 1 to 1,000]")
@click.option("--prompts", default=1024, show_default=True, type=click.IntRange(min=2), help="Test prompts.")
def probe(position: int, factors: str, prompts: int, **where: Any) -> None:
    """Ask for each number of a disturbed prompt by itself: is it the parts that fail, or the putting together?"""
    from icl_lab.analyses import probes
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    stretches = _growing(factors)
    runs, lab = models(**where)
    for run in runs:
        probes.check(run.spec, position)
    found = probes.examine(by_rule(runs), lab, position, stretches, prompts)
    spec = runs[0].spec
    place = f"-at-{position}" if position else ""
    folder = lab.store.root / f"probe-{filename(spec.task)}-{spec.preset}{place}"
    text, files = probes.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "probe.png")


@click.command("heads")
@model_options
@click.option("--prompts", default=64, show_default=True, type=click.IntRange(min=2), help="Prompts in each cell.")
def heads_(prompts: int, **where: Any) -> None:
    """Say what heads look at: entropy, sinks, neighbours, numbers against answers, along every axis of the shift."""
    from icl_lab.analyses import heads
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    runs, lab = models(**where)
    for run in runs:
        heads.check(run.spec)
    found = heads.gather(by_rule(runs), lab, prompts)
    spec = runs[0].spec
    folder = lab.store.root / f"heads-{filename(spec.task)}-{spec.preset}"
    text, files = heads.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "heads.png")


def _growing(factors: str) -> Sequence[float]:
    """What a number that grows is multiplied by, from 1 on."""
    from icl_lab.analyses.saturations import FACTORS

    return sorted({1.0, *numbers(factors, "--factors")}) if factors else FACTORS
