"""Bounds with planted numbers, and runs that are finished in a second."""

import math

import pytest

from icl_lab.analyses.boundary.bounds import AXES, Bounds
from icl_lab.base.grid import Grid
from icl_lab.pipeline import sweep
from icl_lab.runs.spec import resolve


def rows_of(bounds, kind, rule, slopes, scales):
    for seed, value in enumerate(bounds):
        for slope in slopes:
            for scale in scales:
                b = value(slope, scale) if callable(value) else value
                numbers = {"class": 0 if math.isnan(b) else kind, "bound": b, "bound-low": b - 1, "bound-high": b + 1}
                numbers |= {"clip": 7.0, "onset": 5.0, "agreement": 0.9, "exponent": 0.5, "reach": 40.0, "far": 2.0}
                where = {"attn": rule, "seed": seed, "slope": slope, "intercept": 0, "scale": scale}
                for side in (-1, 1):
                    for metric, v in numbers.items():
                        yield {**where, "side": side, "metric": metric, "value": v, "stderr": None, "count": 16}


@pytest.fixture
def planted():
    """Bounds of given normalizers, one number (or a function of slope and scale) a seed, on both sides of a line."""

    def build(bounds, kind=1, rule="softmax", slopes=(1.0,), scales=(1.0,), **others):
        rows = list(rows_of(bounds, kind, rule, slopes, scales))
        for name, values in others.items():
            rows += rows_of(values, kind, name, slopes, scales)
        grid = Grid.of(rows, [*AXES, "side"], task="linear", preset="smoke", spec="0")
        return Bounds({"boundary": grid}, {"softmax": resolve("linear", "softmax", "smoke")})

    return build


@pytest.fixture
def finished(tiny, lab):
    """Return a run of five training steps, tested on three cells."""

    def build(attn="softmax", seed=0, sigmas="1,4,10"):
        spec = tiny("linear", attn, "train.steps=5", f"test.axes.sigma_f={sigmas}", "test.axes.sigma_x=1")
        sweep(spec, seed, lab)
        return lab.store.run(spec, seed)

    return build
