"""Commands that train, test and compare."""

from dataclasses import replace

import click

import icl_lab as icl
from icl_lab import pipeline
from icl_lab.cli.hints import then
from icl_lab.cli.options import beside_option, crowd_options, gathered, run_options, tell
from icl_lab.cli.output import out
from icl_lab.cli.show import close, show, tell_repeat, warn
from icl_lab.cli.terminal import Terminal
from icl_lab.errors import RunFailed
from icl_lab.launch import study
from icl_lab.launch.announce import Clock, announce, announce_all, tell_changes, title
from icl_lab.launch.complete import check_sizes, restart, settled
from icl_lab.launch.draw import draw_history
from icl_lab.launch.plan import RunPlan
from icl_lab.launch.progress import say
from icl_lab.launch.where import Where
from icl_lab.runs.run import Run


class RunTable(Terminal):
    """Terminal that shows each run of a plan as it is finished; with several seeds in a line."""

    def __init__(self, plan: RunPlan) -> None:
        super().__init__()
        self._brief, self._swap, self.done = len(plan.seeds) > 1, plan.swap, list[Run]()

    def finished(self, run: Run, already: bool) -> None:
        """Show a run."""
        if run.swap or not self._swap:
            show(run, already, brief=self._brief)
            self.done.append(run)


@click.command()
@run_options
@crowd_options
@click.option("--swap", default="", metavar="RULE", help="Test the trained model with another rule, e.g. ssmax:s=swap.")
@gathered
def sweep(plan: RunPlan, where: Where) -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    shown = RunTable(plan)
    here = replace(where, evidence=bool(where.evidence), progress=shown)
    try:
        icl.sweep(plan.task, plan.attns, plan.preset, plan.settings, seeds=plan.seeds, swap=plan.swap, where=here)
    finally:
        if shown.done:
            close(shown.done)
            tell_repeat(shown.done)
    if lost := sum(bool(run.diverged) for run in shown.done):
        raise RunFailed(f"{lost} of {len(shown.done)} trainings diverged, see above; there is no model of them.")


@click.command()
@run_options
@crowd_options
@click.option("--baseline", default="softmax", show_default=True, help="What the others are compared with.")
@beside_option
@click.option("--name", default="", help="Folder in the results folder.  [default: named by what is compared]")
@gathered
def compare(plan: RunPlan, baseline: str, where: Where) -> None:
    """Compare normalizers, paired over training seeds; trains what is missing."""
    seeds = len(plan.seeds)
    made = icl.compare(plan.task, plan.attns, plan.preset, plan.settings, seeds=seeds, baseline=baseline, where=where)
    out(str(made))
    out(made.verdict)
    warn([run.stored for run in made.runs])
    out(f"wrote {made.folder}: {', '.join(made.made.files)}")
    out(f"next: open {made.folder / 'report.html'}")
    out(f"next: {then('compare', {'--seeds': [str(seeds + 2)]})}   (more seeds: surer answers)")


@click.command()
@run_options
@gathered
def train(plan: RunPlan, where: Where) -> None:
    """Train only: what sweep does before it tests."""
    failed = 0
    with replace(where, evidence=bool(where.evidence) and not where.force).session() as lab:
        runs = plan.runs(lab.store)
        clock = Clock(lab.device, stopping=lab.stopping)
        check_sizes(runs, lab, tested=False)
        tell_changes(runs, lab.say)
        announce_all(runs, clock, lab.say)
        for run in runs:
            announce(run, lab, clock, out if where.dry_run else None)
            if where.dry_run:
                continue
            if where.force:
                restart(run, lab)
            try:
                with run.locked(lab.say, lab.stopping):
                    already = run.trained
                    pipeline.trained(run, lab)
            except RunFailed as error:
                if len(runs) == 1:
                    raise
                say(f"failed: {title(run)} ({error})")
                failed += 1
                continue
            _tell_trained(run, already)
    if failed:
        raise RunFailed(f"{failed} of {len(runs)} trainings did not finish, see above; the others are done.")
    if not where.dry_run:
        out(f"next: {then('sweep')}")


def _tell_trained(run: Run, already: bool) -> None:
    """Draw and print the end of a training, unless it is the repository's."""
    if run.kept is not None:
        out(f"trained already, in {run.kept.path}")
        return
    settled(run)
    draw_history(run)
    last = run.history()[-1]
    out(f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}")
    out(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")


@click.command()
@run_options
@crowd_options
@click.option("--name", default="", help="Folder in the results folder.  [default: named by what is compared]")
@gathered
def ablate(plan: RunPlan, where: Where) -> None:
    """Leave one part of the model out at a time: attention only, MLP only, no norm, a layer less; compare with all."""
    with where.session() as lab:
        made = study.ablate(plan, lab, where)
    tell(made.text, made.folder, made.files, "report.html")
