"""Commands that train, test and compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.hints import then
from icl_lab.cli.launch import Order, complete, resolve_runs
from icl_lab.cli.options import beside_option, crowd_options, run_options, tell
from icl_lab.cli.output import out
from icl_lab.cli.progress import say
from icl_lab.cli.show import close, show, tell_repeat, warn
from icl_lab.errors import BadValue, RunFailed
from icl_lab.launch.announce import Clock, announce, announce_all, title
from icl_lab.launch.complete import check_sizes, restart, settled
from icl_lab.launch.draw import draw_history

if TYPE_CHECKING:
    from icl_lab.runs.run import Run


@click.command()
@run_options
@crowd_options
@click.option("--swap", default="", metavar="RULE", help="Test the trained model with another rule, e.g. ssmax:s=swap.")
def sweep(task: str, attns: tuple[str, ...], seeds: int, swap: str, **where: Any) -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    order, evidence = Order.of(where), bool(where.pop("evidence"))
    runs, lab = resolve_runs(task, attns, seeds, swap=swap, evidence=evidence, **where)
    shown = [run for run in runs if run.swap or not swap]
    done: list[Run] = []

    def after(run: "Run", already: bool) -> None:
        if run in shown:
            show(run, already, brief=seeds > 1)
            done.append(run)

    try:
        complete(runs, lab, order, after=after)
    finally:
        if done:
            close(done)
            tell_repeat(done)
    if lost := sum(bool(run.diverged) for run in done):
        raise RunFailed(f"{lost} of {len(done)} trainings diverged, see above; there is no model of them.")


@click.command()
@run_options
@crowd_options
@click.option("--baseline", default="softmax", show_default=True, help="What the others are compared with.")
@beside_option
@click.option("--name", default="", help="Folder in the results folder.  [default: named by what is compared]")
def compare(
    task: str, attns: tuple[str, ...], seeds: int, baseline: str, beside: tuple[Path, ...], name: str, **where: Any
) -> None:
    """Compare normalizers, paired over training seeds; trains what is missing."""
    from icl_lab import normalizers
    from icl_lab.comparison.sentences import sentence
    from icl_lab.launch import study

    order = Order.of(where)
    runs, lab = resolve_runs(task, attns, seeds, **where)
    if len({run.spec.attn for run in runs}) < 2:
        raise click.UsageError("a comparison needs at least two different normalizers: give --attn again.")
    if normalizers.canonical(baseline) not in {run.spec.attn for run in runs}:
        # Said before anything is trained for it.
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(attns)}.")
    finish = lambda runs, tested: complete(runs, lab, order, tested=tested)  # noqa: E731
    made = study.compare(runs, lab, baseline, finish, name=name, force=order.force, beside=beside)
    if made is None:
        return
    out(made.text)
    out(sentence(made.found))
    warn(runs)
    out(f"wrote {made.folder}: {', '.join(made.files)}")
    out(f"next: open {made.folder / 'report.html'}")
    out(f"next: {then('compare', {'--seeds': [str(made.found.seeds + 2)]})}   (more seeds: surer answers)")


@click.command()
@run_options
def train(task: str, attns: tuple[str, ...], seeds: int, force: bool, dry_run: bool, **where: Any) -> None:
    """Train only: what sweep does before it tests."""
    from icl_lab.pipeline import trained

    evidence = bool(where.pop("evidence")) and not force
    runs, lab = resolve_runs(task, attns, seeds, evidence=evidence, **where)
    clock, failed = Clock(lab.device, stopping=lab.stopping), 0
    check_sizes(runs, lab, tested=False)
    announce_all(runs, clock, say)
    for run in runs:
        announce(run, lab, clock, out if dry_run else None)
        if dry_run:
            continue
        if force:
            restart(run, lab)
        try:
            with run.locked(lab.say, lab.stopping):
                already = run.trained
                trained(run, lab)
        except RunFailed as error:
            if len(runs) == 1:
                raise
            say(f"failed: {title(run)} ({error})")
            failed += 1
            continue
        if run.copied:
            out(f"trained already, in {run.files.path}")
            continue
        settled(run)
        draw_history(run)
        last = run.history()[-1]
        out(f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}")
        out(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")
    if failed:
        raise RunFailed(f"{failed} of {len(runs)} trainings did not finish, see above; the others are done.")
    if not dry_run:
        out(f"next: {then('sweep')}")


@click.command()
@run_options
@crowd_options
@click.option("--name", default="", help="Folder in the results folder.  [default: named by what is compared]")
def ablate(task: str, attns: tuple[str, ...], seeds: int, name: str, **where: Any) -> None:
    """Leave one part of the model out at a time: attention only, MLP only, no norm, a layer less; compare with all."""
    from icl_lab.comparison import ablations
    from icl_lab.comparison.gather import described, gather, publish
    from icl_lab.evidence.archive import own_studies
    from icl_lab.runs import study_folder

    order = Order.of(where)
    if len(attns) != 1:
        raise click.UsageError("an ablation is of one normalizer: give --attn once.")
    (whole, *_), lab = resolve_runs(task, attns, seeds, **where)
    specs = ablations.ablations(whole.spec, where["settings"])
    groups = {part: [lab.store.run(spec, seed) for seed in range(seeds)] for part, spec in specs.items()}
    runs = [run for group in groups.values() for run in group]
    title = f"{whole.spec.task}, {whole.spec.attn}: one part less"
    made = described(groups, ablations.WHOLE, lab.command, title, "ablate")
    folder = study_folder.place(made, own_studies(lab.store.root), name, force=order.force)
    if not complete(runs, lab, order):
        return
    text, files = publish(gather(groups, ablations.WHOLE), groups, folder, made)
    tell(text, folder, files, "report.html")
