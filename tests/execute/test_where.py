"""Results folder, device and workers of a call, and the runs that a plan names."""

import sys
from types import SimpleNamespace

import pytest

import icl_lab as icl
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.execute import progress
from icl_lab.execute.arguments import checked, described, fits
from icl_lab.execute.plan import RunPlan, stored
from icl_lab.execute.reporter import Reporter, Silent
from icl_lab.runs.spec import resolve
from tests.execute.conftest import Notes

pytestmark = pytest.mark.usefixtures("quick_pictures")


def test_progress_is_a_reporter_or_none_or_the_callers():
    mine = Reporter()
    assert type(icl.Where().reporter) is Reporter
    assert type(icl.Where(progress=False).reporter) is Silent
    assert icl.Where(progress=mine).reporter is mine


@pytest.mark.slow
def test_the_reporter_is_told_of_runs_and_dry_runs(tmp_path):
    small = ["train.steps=5", "train.batch=8", "model.width=16", "test.prompts=64", "test.axes.length=5"]
    notes = Notes()
    for options in ({"dry_run": True}, {}, {}):
        where = icl.Where(results=tmp_path, progress=notes, **options)
        icl.sweep("linear", "softmax", "smoke", small, seeds=2, where=where)
    assert notes.runs == [(0, False), (1, False), (0, True), (1, True)]
    assert len(notes.lines) == 2
    assert all(line.startswith("to do") for line in notes.lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobs": 1.5}, "jobs must be a whole number or None, got 1.5."),
        ({"threads": 0}, "threads must be a whole number from 1 to 1,024, got 0."),
        ({"results": 3}, "results must be a text, a path or None, got 3."),
        ({"engine": "slurm"}, "engine must be 'local' or 'ray', got 'slurm'."),
        ({"shard": (1, 2, 3)}, "shard must be a pair (a whole number, a whole number), got (1, 2, 3)."),
        ({"force": 1}, "force must be True or False, got 1."),
        ({"address": "auto"}, "--address and --gpus-per-run are of a Ray cluster: add --engine ray."),
    ],
)
def test_a_field_that_does_not_fit_is_one_line(options, said):
    with pytest.raises(BadValue) as raised:
        icl.Where(**options)
    assert str(raised.value).startswith(said)


def test_the_published_test_set_is_a_setting(lab):
    plan = RunPlan("linear", ["ssa"], "smoke", ["train.steps=5", "draws=paper"])
    (run,) = plan.runs(lab.store)
    assert run.spec == resolve("linear", "ssa", "smoke", ["train.steps=5"], "paper")
    assert plan.command("sweep", icl.Where(force=True)) == (
        "icl-lab sweep --task linear --attn ssa --preset smoke --set train.steps=5 --draws paper --force"
    )


def test_several_normalizers_seeds_and_a_swap_are_one_run_each(lab):
    plan = RunPlan("linear", ["softmax", "ssa", "softmax"], "smoke", seeds=[3, 5], swap="ssmax")
    runs = plan.runs(lab.store)
    assert [(run.spec.attn, run.seed, run.swap) for run in runs] == [
        (attn, seed, swap) for attn in ("softmax", "ssa") for seed in (3, 5) for swap in ("", "ssmax")
    ]


def test_of_settings_named_twice_the_last_counts():
    asked = RunPlan("linear", ["ssa"], settings=["draws=paper", "rates=own", "draws=ours", "rates = shared"])
    assert (asked.draws, asked.rates, asked.changes) == ("ours", "shared", [])


def test_without_a_hash_the_only_other_run_of_a_seed_is_meant():
    usual, other = (resolve("linear", "ssa", "smoke", changes) for changes in ([], ["train.steps=5"]))

    def found(seed, *there, size="smoke"):
        runs = [SimpleNamespace(spec=spec, seed=number) for spec, number in there]
        lab = SimpleNamespace(say=None, store=SimpleNamespace(runs=lambda say: runs))
        return stored("linear", "ssa", size, seed, lab).spec

    assert found(1, (other, 0), (other, 1)) is other
    assert found(1, (other, 1), (usual, 1)) is usual
    assert found(1, (other, 1), (usual, 1), size=f"smoke-{other.hash}") is other
    third = resolve("linear", "ssa", "smoke", ["train.steps=6"])
    with pytest.raises(UnknownName, match="linear/ssa/smoke, seed 1"):
        found(1, (other, 1), (third, 1))
    with pytest.raises(BadValue, match="no stored run of seed 1; there: seed 0"):
        found(1, (usual, 0))


def test_a_sequence_of_texts_is_no_text_and_true_is_no_number():
    assert not fits("ab", list[str] | tuple[str, str])
    assert described(int | None) == "a whole number or None"
    assert not fits(True, float)
    assert fits(2, float)


def test_options_by_keyword_are_checked_too():
    @checked
    def draw(count: int, **shift: float) -> tuple[int, dict[str, float]]:
        return count, shift

    assert draw(2, sigma=3) == (2, {"sigma": 3})
    with pytest.raises(BadValue, match="sigma must be a number, got 'far'"):
        draw(2, sigma="far")
    with pytest.raises(BadValue, match="draw: missing a required argument: 'count'"):
        draw(sigma=3)


def test_bars_are_drawn_in_a_kernel_of_jupyter(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert progress.drawn() is False
    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    for shell in (None, SimpleNamespace(config={}), kernel):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert progress.drawn() is (shell is kernel)
