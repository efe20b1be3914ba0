"""Trainings without a test: announced, done one after another, drawn, and printed."""

from dataclasses import replace

from icl_lab import pipeline
from icl_lab.cli.output import out
from icl_lab.errors import RunFailed
from icl_lab.launch.announce import Clock, announce, announce_all, check_time, tell_changes, title
from icl_lab.launch.complete import check_sizes, restart, settled
from icl_lab.launch.draw import draw_history
from icl_lab.launch.plan import RunPlan
from icl_lab.launch.progress import say
from icl_lab.launch.where import Where
from icl_lab.runs.run import Run


def train_only(plan: RunPlan, where: Where) -> None:
    """Train the models of a plan. Raises ``RunFailed`` when some failed, once the others are done."""
    failed = 0
    with replace(where, evidence=bool(where.evidence) and not where.force).session() as lab:
        runs = plan.runs(lab.store)
        clock = Clock(lab.device, stopping=lab.stopping)
        check_sizes(runs, lab, tested=False)
        tell_changes(runs, lab.say)
        announce_all(runs, clock, lab.say)
        if not where.dry_run:
            check_time(runs, lab, clock)
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
            lab.tracked.finished(run)
    if failed:
        raise RunFailed(f"{failed} of {len(runs)} trainings did not finish, see above; the others are done.")


def _tell_trained(run: Run, already: bool) -> None:
    """Draw and print the end of a training, unless it is the repository's."""
    if run.copied:
        out(f"trained already, in {run.files.path}")
        return
    settled(run)
    draw_history(run)
    last = run.history()[-1]
    out(f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}")
    out(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")
