"""A quarter of an hour of one GPU: SSA at width 256, own rates, the read-out's start, by CUDA graphs.

python experiments/gpu.py --to FOLDER                  on a GPU, presets wide4 and paper2
python experiments/gpu.py --to FOLDER --rehearse       every part on a CPU at preset smoke, in three minutes

Parts come cheapest first, and what is finished is kept in FOLDER after each: runs.tar.gz (runs without weights, for
``icl-lab evidence pack``), log.txt, and the weights of two models in pieces of at most 15 MB. A part that is not begun
when the time is up is named. Trainings run several at once, under NVIDIA's multi-process service where there is one.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import torch

from icl_lab import pipeline
from icl_lab.base.errors import Diverged
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

TUNING = (100, 101)  # training seeds for rates, which judge no claim
TESTS = ["test.axes.sigma_x=1", "test.axes.sigma_f=1,2,3,4,5,6,7,8,9,10,100"]
AT_ONCE = 6
PIECE = 15 * 2**20  # bytes of a piece of a file of weights
Job = tuple[str, Sequence[str], int]  # normalizer, settings, training seed


def trainings() -> Iterator[tuple[str, list[Job]]]:
    """Parts of trainings, cheapest first."""
    yield "read-out start 1 and 4", [("softmax", [f"model.read_out_start={start}"], 0) for start in (1, 4)]
    for seed in TUNING:
        rates = [
            (attn, [f"train.rate={5e-3 * share:g}", f"train.muon_rate={5e-3 * share:g}"], seed)
            for attn in ("softmax", "ssa")
            for share in (0.5, 0.25)
        ]
        yield (
            f"rates 1/2 and 1/4, and mup, seed {seed}",
            [*rates, *((attn, ["train.scaling=mup"], seed) for attn in ("softmax", "ssa"))],
        )


@click.group(invoke_without_command=True)
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), help="Folder to write into.")
@click.option("--minutes", default=11.5, show_default=True, help="Time after which nothing is begun, and all is ended.")
@click.option("--rehearse", is_flag=True, help="Every part on a CPU at preset smoke.")
@click.pass_context
def main(context: click.Context, to: Path | None, minutes: float, rehearse: bool) -> None:
    """Run all parts, and keep what each has finished."""
    if context.invoked_subcommand:
        return
    if to is None:
        raise click.UsageError("name the folder to write into: --to FOLDER")
    if not rehearse and not torch.cuda.is_available():
        raise click.ClickException("there is no CUDA device here; --rehearse runs every part on a CPU.")
    session = Session(to, time.monotonic() + 60 * minutes, rehearse)
    session.multi_process_service()
    session.width()
    session.own_rates()
    for name, jobs in trainings():
        session.train(name, jobs)
    for part in ("step", "jobs", "memory"):
        session.bench(part)


class Session:
    """One use of a machine: its folder, its end, and what is run in it."""

    def __init__(self, to: Path, end: float, rehearse: bool) -> None:
        to.mkdir(parents=True, exist_ok=True)
        self.to, self.end, self.rehearse = to, end, rehearse
        self.results = to / "results"
        self.device = "cpu" if rehearse else "cuda"

    def say(self, text: str) -> None:
        """Print a line, and keep it in log.txt."""
        click.echo(text)
        with (self.to / "log.txt").open("a") as log:
            log.write(text + "\n")

    def run(self, *words: str) -> subprocess.CompletedProcess[str] | None:
        """Run a command of this interpreter until the end of the session; None where no time is left."""
        left = self.end - time.monotonic()
        if left < 5:
            self.say(f"not begun, the time is up: {' '.join(words)}")
            return None
        try:
            return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            self.say(f"ended by the time: {' '.join(words)}")
            return None

    def multi_process_service(self) -> None:
        """Start NVIDIA's service that lets processes share a GPU at the same moment, where it is installed."""
        control = shutil.which("nvidia-cuda-mps-control")
        if control and not self.rehearse:
            subprocess.run([control, "-d"], check=False)
        self.say(f"multi-process service: {'started' if control and not self.rehearse else 'none'}")

    def train(self, name: str, jobs: Sequence[Job]) -> None:
        """Train and test jobs, several at once, each also with labels rescaled; keep what is finished."""
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE if not self.rehearse else 2) as pool:
            done = list(pool.map(lambda job: self.run(__file__, "one", *self._words(job)), jobs))
        for job, result in zip(jobs, done, strict=True):
            if result is not None:
                self.say(result.stdout.strip() or f"{job}: {result.stderr.strip().splitlines()[-1:]}")
        self.say(f"{name}: {time.monotonic() - began:.0f} s")
        self.keep()

    def _words(self, job: Job) -> list[str]:
        attn, settings, seed = job
        made = [*TESTS, *settings] + ([] if self.rehearse else ["train.engine=graph"])
        preset = "smoke" if self.rehearse else "paper2"
        return [json.dumps([attn, preset, made, seed, self.device, str(self.results)])]

    def width(self) -> None:
        """Train the cells of ``ssa-width.toml`` at the paper's size: fixed and mup, three seeds each."""
        preset, steps = ("smoke", ["train.steps=20"]) if self.rehearse else ("paper2", [])
        cells = ("ssa", "softmax, mup", "ssa, mup")
        words = ["experiment", "ssa-width", "--seeds", "3", *(word for cell in cells for word in ("--variant", cell))]
        self.commands("SSA at width 256", preset, [(words, steps)])

    def own_rates(self) -> None:
        """Make the curves of ``ssa-own-rates.toml``, and train its seeds at their best; keep what is finished."""
        preset, steps = ("smoke", ["train.steps=20"]) if self.rehearse else ("wide4", [])
        tuned = ["train.scaling=mup", *(steps or ["train.steps=4000"])]
        curves = ["rates", "--task", "linear", "--attn"]
        confirmed = ["experiment", "ssa-own-rates", "--seeds", "2" if self.rehearse else "5"]
        parts = [([*curves, "softmax,ssa"], tuned), ([*curves, "softmax"], [*tuned, "model.qk_norm=yes"])]
        self.commands("own rates at width 256", preset, [*parts, (confirmed, steps)])

    def commands(self, name: str, preset: str, parts: Sequence[tuple[list[str], list[str]]]) -> None:
        """Run commands at a preset, each with settings of its own, several trainings at once; keep what is finished."""
        began = time.monotonic()
        jobs, engine = ("2", []) if self.rehearse else (str(AT_ONCE), ["train.engine=graph"])
        common = ["--preset", preset, "--device", self.device, "--jobs", jobs, "--results", str(self.results)]
        for words, settings in parts:
            result = self.run(
                "-m", "icl_lab", *words, *common, *(w for each in [*settings, *engine] for w in ("--set", each))
            )
            if result is not None:
                self.say(result.stdout + result.stderr[-300:] * bool(result.returncode))
                self.keep()
        self.say(f"{name}: {time.monotonic() - began:.0f} s")

    def bench(self, part: str) -> None:
        """Run one part of the laboratory's own measurements of speed, for which time is left."""
        words = ["--only", part, "--device", self.device, "--pairs", "1", "--results", str(self.results)]
        if self.rehearse:
            self.say(f"not rehearsed: python -m benchmarks {' '.join(words)}")
            return
        result = self.run("-m", "benchmarks", *words)
        if result is not None:
            self.say(result.stdout)
            self.keep()

    def keep(self) -> None:
        """Write what the runs hold but their weights to runs.tar.gz, and the first two models in pieces."""
        weights = sorted(self.results.rglob("model.safetensors"))
        with tarfile.open(self.to / "runs.tar.gz", "w:gz") as archive:
            if self.results.exists():
                archive.add(
                    self.results,
                    "results",
                    filter=lambda file: None if file.name.endswith("model.safetensors") else file,
                )
        for number, path in enumerate(weights[:2]):
            data = path.read_bytes()
            if len(data) > 40 * 2**20:
                continue
            for start in range(0, len(data), PIECE):
                (self.to / f"weights-{number}-{start // PIECE}.part").write_bytes(data[start : start + PIECE])
            with (self.to / "weights.txt").open("a" if number else "w") as listed:
                listed.write(f"weights-{number}: {path.relative_to(self.results)}\n")


@main.command()
@click.argument("job")
def one(job: str) -> None:
    """Train and test one run (JSON: normalizer, preset, settings, seed, device, results), and test it rescaled."""
    attn, preset, settings, seed, device, results = json.loads(job)
    lab = Lab(Store(Path(results)), torch.device(device), say=lambda text: None, command="experiments/gpu.py")
    for more in ([], ["test.rescale=labels"]):
        spec = resolve("linear", attn, preset, [*settings, *more], "paper")
        try:
            grid = pipeline.sweep(spec, seed, lab)
        except Diverged as reason:
            click.echo(f"{spec.name} seed {seed}: {reason}")
            return
        own = grid.where(attn=attn, metric="mse-code").frame
        far = {sigma: float(value) for sigma, value in zip(own["sigma_f"], own["value"], strict=True)}
        bound = lab.store.run(spec, seed).bound()
        click.echo(
            f"{spec.name} seed {seed} {' '.join(more)}: error {far[1.0]:.3g} at 1, {far[10.0]:.3g} at 10, C {bound:.3g}"
        )


if __name__ == "__main__":
    main()
