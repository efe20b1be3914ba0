"""Commands that train, test and compare."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from icl_lab.cli.launch import Order, announce, complete, draw_history, finish, resolve_runs, show
from icl_lab.cli.options import catch_signals, crowd_options, run_options, say, tell
from icl_lab.errors import BadValue


@click.command()
@run_options
@crowd_options
@click.option("--swap", default="", metavar="RULE", help="Test the trained model with another rule, e.g. ssmax:s=swap.")
def sweep(task: str, attns: tuple[str, ...], seeds: int, swap: str, **where: Any) -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    order = Order.of(where)
    runs, lab = resolve_runs(task, attns, seeds, swap=swap, **where)
    complete(runs, lab, order, after=lambda run, already: show(run, already) if run.swap or not swap else None)


@click.command()
@run_options
@crowd_options
@click.option("--baseline", default="softmax", show_default=True, help="What the others are compared with.")
@click.option("--name", default="", help="Folder of the study in the results folder.  [default: task and preset]")
def compare(task: str, attns: tuple[str, ...], seeds: int, baseline: str, name: str, **where: Any) -> None:
    """Compare normalizers, paired over training seeds; trains what is missing."""
    from icl_lab import normalizers
    from icl_lab.comparison.gather import gather, publish
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    order = Order.of(where)
    runs, lab = resolve_runs(task, attns, seeds, **where)
    if len(attns) < 2:
        raise click.UsageError("a comparison needs at least two normalizers: give --attn again.")
    if normalizers.canonical(baseline) not in {run.spec.attn for run in runs}:
        # Said before anything is trained for it.
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(attns)}.")
    if not complete(runs, lab, order):
        return
    study, spec = gather(by_rule(runs), normalizers.canonical(baseline)), runs[0].spec
    folder = lab.store.root / (name or f"{filename(spec.task)}-{spec.preset}")
    text, files = publish(study, runs, folder, lab.command)
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(files)}")
    click.echo(f"next: open {folder / 'report.html'}, or more seeds for surer answers: --seeds {study.seeds + 2}")


@click.command()
@run_options
def train(task: str, attns: tuple[str, ...], seeds: int, force: bool, dry_run: bool, **where: Any) -> None:
    """Train only: what sweep does before it tests."""
    from icl_lab.sweep import trained

    runs, lab = resolve_runs(task, attns, seeds, **where)
    for run in runs:
        announce(run, lab, dry_run=dry_run)
        if dry_run:
            continue
        with run.locked(lab.say, lab.stopping):
            if force:
                run.clear()
            already = run.trained
            trained(run, lab)
        draw_history(run)
        last = run.history()[-1]
        click.echo(
            f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}"
        )
        click.echo(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")
        click.echo(f"next: icl-lab sweep --task {run.spec.task} --attn {run.spec.attn} --preset {run.spec.preset}")


@click.command()
@run_options
@crowd_options
def ablate(task: str, attns: tuple[str, ...], seeds: int, **where: Any) -> None:
    """Leave one part of the model out at a time: attention only, MLP only, no norm, a layer less; compare with all."""
    from icl_lab.comparison import ablations
    from icl_lab.comparison.gather import gather, publish
    from icl_lab.registry import filename

    order = Order.of(where)
    if len(attns) != 1:
        raise click.UsageError("an ablation is of one normalizer: give --attn once.")
    (whole, *_), lab = resolve_runs(task, attns, seeds, **where)
    specs = ablations.ablations(whole.spec, where["settings"])
    groups = {name: [lab.store.run(spec, seed) for seed in range(seeds)] for name, spec in specs.items()}
    runs = [run for group in groups.values() for run in group]
    if not complete(runs, lab, order):
        return
    spec = whole.spec
    folder = lab.store.root / f"ablations-{filename(spec.task)}-{filename(spec.attn)}-{spec.preset}"
    text, files = publish(
        gather(groups, ablations.WHOLE), runs, folder, lab.command, title=f"{spec.task}, {spec.attn}: one part less"
    )
    tell(text, folder, files, "report.html")


@click.command(hidden=True)
def work() -> None:
    """Do one run as a worker: orders on standard input, progress on standard output."""
    import json

    import msgspec
    import torch

    from icl_lab import outside
    from icl_lab.runs import environment
    from icl_lab.runs.session import Lab
    from icl_lab.runs.spec import RunSpec
    from icl_lab.runs.store import Store

    orders = json.loads(sys.stdin.readline())
    outside.obey(orders["imports"])
    torch.set_num_threads(orders["threads"])
    spec = msgspec.convert(orders["spec"], RunSpec)
    asked = catch_signals()
    orphaned: list[bool] = []

    def tick(stage: str, done: int, total: int, note: str) -> None:
        try:
            print(json.dumps({"step": done if stage == "train" else spec.train.steps}), flush=True)
        except BrokenPipeError:
            # The supervisor is gone: keep what there is, and stop as if asked to.
            orphaned.append(True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123

    lab = Lab(
        Store(Path(orders["results"])),
        environment.device(orders["device"]),
        say,
        tick,
        lambda: bool(asked() or orphaned),
        orders["command"],
    )
    finish(lab.store.run(spec, orders["seed"], orders["swap"]), lab)
