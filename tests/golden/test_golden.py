"""Golden record: what no restructuring may change. Made before the first one; equal to the byte unless said otherwise.

* ``results/claims.csv``: every number that a verdict rests on, at every scale, with the specifications of its runs.
* ``specs.csv``: the hash of every variant of every experiment at every preset.
* ``smoke/``: the grid of each task after ten steps of preset smoke. Training is another machine's rounding: 1e-4 of a
  value, and for error rates one prompt in those of the cell.
"""

import csv
import io
import math
from pathlib import Path

import pytest
import torch

from icl_lab import pipeline, tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.claims import experiment as experiments
from icl_lab.claims import judge, ledger, record
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPERIMENTS = ROOT / "experiments"
CLOSE = 1e-6  # relative, of numbers that references measured anew and resamples of them enter


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("none") / "results", Archive(ROOT / "results" / "evidence"))


@pytest.mark.slow
def test_hashes_of_experiments_are_as_they_were():
    wanted = list(csv.DictReader(io.StringIO((HERE / "specs.csv").read_text())))
    assert len(wanted) > 2000
    made = {name: experiments.load(name, EXPERIMENTS) for name in {row["experiment"] for row in wanted}}
    for row in wanted:
        variant = made[row["experiment"]].variant(row["variant"])
        try:
            spec = made[row["experiment"]].spec(variant, row["preset"]).hash
        except BadValue:  # a variant that does not fit the preset
            spec = "-"
        else:
            spec += f"->{variant.tested_with}" if variant.tested_with else ""
        assert spec == row["spec"], row


@pytest.mark.parametrize("task", [path.stem for path in sorted((HERE / "smoke").glob("*.csv"))])
@pytest.mark.slow
def test_a_short_sweep_gives_the_grid_that_it_gave(task, tmp_path):
    wanted = Grid.read(HERE / "smoke" / f"{task}.csv")
    lab = Lab(Store(tmp_path), torch.device("cpu"), say=lambda text: None)
    found = pipeline.sweep(resolve(task, "softmax", "smoke", ["train.steps=10"]), 0, lab)
    assert list(found.frame.columns) == list(wanted.frame.columns)
    labels = [name for name in wanted.frame.columns if name not in ("value", "stderr")]
    known = {tuple(row[:-2]): row[-2:] for row in found.frame[[*labels, "value", "stderr"]].itertuples(index=False)}
    assert set(found.values("metric")) - set(wanted.values("metric")) <= {"floor", "new-floor"}  # which came later
    rates = tasks.build(task).rates
    for *row, value, error in wanted.frame[[*labels, "value", "stderr"]].itertuples(index=False):
        value_now, error_now = known[tuple(row)]
        room = 2.01 / row[-1] if rates else 1e-9
        assert math.isclose(value_now, value, rel_tol=1e-4, abs_tol=room), row
        assert math.isclose(error_now, error, rel_tol=0.05, abs_tol=room) or math.isnan(error), row


@pytest.mark.parametrize("path", sorted((HERE / "smoke").glob("*.csv")), ids=lambda path: path.stem)
def test_a_grid_is_written_to_the_byte_as_it_was_read(path):
    """Whatever pandas is installed: make test-lowest runs this with the oldest."""
    assert Grid.read(path).csv() == path.read_text()


def test_every_task_has_a_golden_grid():
    assert {path.stem for path in (HERE / "smoke").glob("*.csv")} == set(tasks.names())


@pytest.mark.slow
def test_the_record_of_claims_is_that_of_what_is_stored(repository):
    """Verdicts are read from the record; here, that none of them is about other runs or another file than there are."""
    rows = ledger.stored(repository)
    assert len(rows) >= 121
    made = {name: experiments.load(name, EXPERIMENTS) for name in experiments.names(EXPERIMENTS)}
    untuned = {n for n, each in made.items() if not experiments.fitting(each, "nano", curves=repository)[0].variants}
    assert {name for name, _ in rows} == {name for name, each in made.items() if each.claims} - untuned
    assert {made[name].rates for name in untuned} <= {"own"}
    for (name, preset), there in rows.items():
        assert judge.current(judge.fitted(made[name], repository, preset)[0], there), (name, preset)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_every_verdict_is_judged_again_as_it_is_recorded(repository):
    wanted = list(csv.DictReader(io.StringIO((ROOT / "results" / "claims.csv").read_text())))
    found = list(csv.DictReader(io.StringIO(record.written(EXPERIMENTS, repository)[ledger.NAME])))
    assert [(row["experiment"], row["preset"], row["claim"]) for row in found] == [
        (row["experiment"], row["preset"], row["claim"]) for row in wanted
    ]
    for one, other in zip(wanted, found, strict=True):
        for column, text in one.items():
            assert text == other[column] or _close(text, other[column]), (one["claim"], one["preset"], column)


def _close(one, other):
    """Numbers, one or one per seed, that are equal up to rounding."""
    try:
        pairs = zip(map(float, one.split()), map(float, other.split()), strict=True)
        return all(math.isclose(*pair, rel_tol=CLOSE, abs_tol=CLOSE) for pair in pairs)
    except ValueError:
        return False
