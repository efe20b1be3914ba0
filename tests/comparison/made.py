"""Studies made of numbers, for the tests of pages."""

from icl_lab import tasks
from icl_lab.base.grid import Grid
from icl_lab.comparison.page import Facts
from icl_lab.comparison.study import PairedGrids
from icl_lab.runs.spec import resolve

SIGMAS = (1.0, 2.0, 4.0, 6.0, 10.0)
SPEC = resolve("linear", "softmax", "lite", ["test.axes.sigma_f=1,2,4,6,10"])


def grid(rule, error, seed):
    """A grid of linear with error(sigma_f, seed) in every cell, beside two references."""
    rows = [
        {"attn": name, "sigma_x": 1.0, "sigma_f": s, "length": 40.0, "value": value}
        for s in SIGMAS
        for name, value in ((rule, error(s, seed)), ("reference:zero", 2.0 * s * s), ("reference:3-nn", 0.2 * s * s))
    ]
    who = {"task": "linear", "preset": "lite", "spec": "0", "seed": seed, "metric": "mse-code", "count": 64}
    return Grid.of(rows, ["sigma_x", "sigma_f", "length"], **who)


def study(errors, seeds=3, baseline="softmax", kept=None):
    """A study of normalizers by their error(sigma_f, seed); ``kept`` holds errors of single prompts."""
    grids = {rule: [grid(rule, error, seed) for seed in range(seeds)] for rule, error in errors.items()}
    training = {"sigma_x": 1.0, "sigma_f": 1.0, "length": 40.0}
    return PairedGrids(tasks.build("linear"), grids, baseline, training, kept or {})


def times(factor, noise=0.0):
    """An error that is ``factor`` times a square, with seeds that differ by ``noise``."""
    return lambda s, seed: factor * s * s * (1 + 0.1 * seed) * (1 + noise * (-1) ** seed * (1 + seed))


def facts(made):
    """What the page is told of the runs of a study."""
    env = {"commit": "0123456789ab", "machine": "Linux x86_64, 2 cores", "device": "cpu (1 threads)"}
    history = [{"step": 50.0 * (k + 1), "loss": 2.0 / (k + 1), "length": 11.0} for k in range(20)]
    return {rule: [Facts(resolve("linear", rule), "", env, history)] * made.seeds for rule in made.grids}
