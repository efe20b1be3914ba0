"""The command that writes a job array for Slurm."""

import re
import shlex
import sys
from pathlib import Path

import click

from icl_lab.cli.commands import training
from icl_lab.cli.hints import given
from icl_lab.cli.options import gathered
from icl_lab.cli.output import out
from icl_lab.cli.values import NewFile
from icl_lab.errors import BadValue
from icl_lab.files import special, write, writing
from icl_lab.launch.announce import duration
from icl_lab.launch.plan import RunPlan
from icl_lab.launch.where import Where
from icl_lab.parts import outside
from icl_lab.runs import environment

NODE_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --time={minutes}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={logs}
#SBATCH --signal=B:USR1@{before}
{more}# Before the time is up, or when the node is wanted back, runs keep a checkpoint and leave with 75.
# The task is then queued again, and goes on from there; {requeues} times at most, for one that makes no progress.
set -u
cd {folder} || exit 1
{command} --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" &
work=$!
trap 'kill -USR1 "$work" 2>/dev/null' USR1 TERM
while kill -0 "$work" 2>/dev/null; do wait "$work"; done  # a signal ends a wait
wait "$work"
code=$?
if [ "$code" -eq 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
elif [ "$code" -eq 75 ]; then
    echo "not queued again: it was {requeues} times; submit the script again to go on." >&2
fi
exit "$code"
"""


@click.command("sweep-slurm")
@click.option("--array", default=4, show_default=True, type=click.IntRange(1, 10_000), help="Tasks of the array.")
@click.option("--minutes", default=60, show_default=True, type=click.IntRange(1, 100_000), help="Time of a task.")
@click.option(
    "--before",
    default=120,
    show_default=True,
    type=click.IntRange(10, 86_400),
    help="Seconds before its end at which a task keeps a checkpoint and is queued again.",
)
@click.option(
    "--sbatch", multiple=True, metavar="OPTION", help="A line for sbatch, e.g. --gres=gpu:1; may be given again."
)
@click.option(
    "--requeues",
    default=100,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="Times that a task is queued again.",
)
@click.option("--file", default="sweep.sbatch", show_default=True, type=NewFile(), help="The script to write.")
@gathered
def sweep_slurm(
    plan: RunPlan,
    where: Where,
    array: int,
    minutes: int,
    before: int,
    requeues: int,
    sbatch: tuple[str, ...],
    file: Path,
) -> None:
    """Write the Slurm script of a job array that does a sweep, and say how to submit it; trains nothing.

    All options of sweep are taken and stand in the script as they are given. The tasks share the results folder, and
    each does its part of the runs.
    """
    if minutes * 60 <= before:
        raise BadValue(f"--before {before} s leaves nothing of the {minutes} minutes of a task.")
    if not NODE_DEVICE.fullmatch(where.device):
        environment.device(where.device)  # raises; whether a node has a GPU is not known here
    runs = plan.runs(where.store())
    imports = [word for source in outside.loaded() for word in ("--import", source.target)]
    logs = (Path.cwd() if special(file) else file.absolute().parent) / "slurm-logs"
    text = SCRIPT.format(
        name=shlex.quote(f"icl-lab-{plan.task}"),
        last=array - 1,
        minutes=minutes,
        before=before,
        requeues=requeues,
        logs=shlex.quote(f"{logs}/%x-%a.log"),
        more="".join(f"#SBATCH {line}\n" for line in sbatch),
        folder=shlex.quote(str(Path.cwd())),
        command=shlex.join([sys.executable, "-m", "icl_lab", "sweep", *given(training.sweep), *imports]),
    )
    with writing(logs):
        logs.mkdir(parents=True, exist_ok=True)  # Slurm makes no folders
    write(file, text.encode())
    out(f"wrote {file}: {len(runs)} runs in {array} tasks of at most {duration(60 * minutes)} each")
    out(f"next: sbatch {shlex.quote(str(file))}")


# What is the array's own business is left out.
sweep_slurm.params[:0] = [option for option in training.sweep.params if option.name not in ("shard", "dry_run")]
