"""Learning curves from histories: by hand, from folders, and from the evidence, without a model."""

import math

import pytest

from icl_lab.analyses import runner
from icl_lab.analyses.learning import Learning, first_below, loss_at, mean_loss, stored
from icl_lab.base.errors import BadValue
from icl_lab.base.files import publish
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

HISTORY = [{"step": 50.0, "loss": 4.0}, {"step": 100.0, "loss": 1.0}, {"step": 150.0, "loss": 2.0}]


def kept(run, losses, learned=()):
    """Write a history of a run as a training leaves it; ``learned`` is a number of a normalizer beside each loss."""
    rows = [f"{50 * (at + 1)},{loss},5,0.001" for at, loss in enumerate(losses)]
    rows = [",".join(map(str, row)) for row in zip(rows, learned, strict=True)] if learned else rows
    head = "step,loss,length,rate" + ",s 0.0" * bool(learned)
    publish(run.folder / "history.csv", "\n".join([head, *rows, ""]).encode())


@pytest.fixture
def histories(tiny, lab, monkeypatch):
    """Return groups of runs of 200 steps with histories, and fails where a model is asked for."""

    def train(*_):
        raise AssertionError("a model was loaded or trained")

    monkeypatch.setattr(runner, "load_or_train", train)

    def build(**rules):
        groups = {}
        for rule, seeds in rules.items():
            spec = tiny("linear", rule, "train.steps=200")
            groups[rule] = [lab.store.run(spec, seed) for seed in range(len(seeds))]
            for run, losses in zip(groups[rule], seeds, strict=True):
                kept(run, losses)
        return groups

    return build


def test_numbers_of_a_history():
    assert [loss_at(HISTORY, step) for step in (10, 50, 99, 100, 200)] == [4, 4, 4, 1, 2]
    assert first_below(HISTORY, 3) == 100
    assert first_below(HISTORY, 1) is None  # below, not at
    assert mean_loss(HISTORY) == pytest.approx(math.log(2))


def test_losses_are_compared_without_a_model(histories, lab, tmp_path):
    groups = histories(softmax=[[4.0, 2.0, 1.0, 0.5], [8.0, 4.0, 2.0, 2.0]], ssa=[[4.0, 0.4, 0.2, 0.1]] * 2)
    analysis = runner.checked(Learning(shares=(1.0, 0.5), below=0.45), groups)
    found = runner.ask(analysis, groups, lab)

    def value(rule, metric, seed, **cells):
        return math.exp(analysis.value(found, rule, cells, metric, seed))

    assert value("softmax", "", 0) == pytest.approx(0.5)
    assert value("softmax", "share", 1, share=[0.5]) == pytest.approx(4)
    assert value("softmax", "share", 0, share=[0.5, 1.0]) == pytest.approx(1)  # geometric: of 2 and 0.5
    assert value("ssa", "below", 0) == pytest.approx(100)
    assert value("softmax", "mean", 1) == pytest.approx((8 * 4 * 2 * 2) ** 0.25)
    with pytest.raises(KeyError):
        value("softmax", "below", 0)
    with pytest.raises(KeyError, match="names it"):
        value("softmax", "share", 0)
    text = "\n".join(analysis.table(found))
    assert "| `softmax` | 2.8 | 1.0 | 0.78 | never (0 of 2 seeds) |" in text
    assert "100 (2 of 2 seeds)" in text
    assert "1.0 with softmax and 0.1 with ssa" in analysis.finding(found)
    (figure,) = analysis.figures(found, "a title").values()
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert lines["ssa"][-1] == pytest.approx(0.1)
    assert lines["softmax"][0] == pytest.approx(32**0.5)  # the geometric mean of 4 and 8
    for name, content in analysis.files(found).items():
        (tmp_path / name).write_text(content)
    read = analysis.read(tmp_path)
    assert analysis.seeds(read) == [0, 1]
    assert analysis.value(read, "softmax", {}, "final", 1) == pytest.approx(math.log(2))


def test_learned_numbers_are_kept(histories, lab):
    groups = histories(ssmax=[[1.0, 1.0]])
    kept(groups["ssmax"][0], [1.0, 0.5], learned=[1.0, 0.75])
    found = runner.ask(Learning(), groups, lab)
    assert found["history"].where(metric="s 0.0").lines("step", "seed") == [[(50.0, 1.0), (100.0, 0.75)]]


@pytest.mark.slow
def test_a_run_without_a_history_is_trained_and_others_are_not(tiny, lab):
    spec = tiny("linear", "softmax", "train.steps=50")
    there, missing = (lab.store.run(spec, seed) for seed in (0, 1))
    kept(there, [3.0])
    analysis = Learning()
    assert analysis.lacking([there, missing]) == [missing]
    found = runner.ask(analysis, {"softmax": [there, missing]}, lab)
    assert missing.trained
    assert not there.trained
    assert analysis.value(found, "softmax", {}, "final", 0) == pytest.approx(math.log(3))
    assert stored(missing) == missing.history()
    assert analysis.value(found, "softmax", {}, "final", 1) == pytest.approx(math.log(missing.history()[-1]["loss"]))


def test_histories_of_the_evidence_are_read(tiny, lab, tmp_path, histories):
    groups = histories(softmax=[[4.0, 2.0, 1.0, 0.5]])
    (run,) = groups["softmax"]
    archive = Archive(tmp_path / "evidence")
    archive.add({run.key: {"history.csv": (run.folder / "history.csv").read_bytes(), "spec.json": b"{}"}})
    elsewhere = Store(tmp_path / "elsewhere", archive).run(run.spec, 0)
    assert not elsewhere.folder.exists()
    assert Learning().lacking([elsewhere]) == []
    found = runner.ask(Learning(), {"softmax": [elsewhere]}, lab)
    assert Learning().value(found, "softmax", {}, "final", 0) == pytest.approx(math.log(0.5))
    assert not elsewhere.folder.exists()


def test_a_run_without_a_training_of_its_own_is_refused(lab, tiny):
    run = lab.store.run(tiny(), 0, "ssa")
    with pytest.raises(BadValue, match="no training of its own"):
        runner.checked(Learning(), {"softmax": [run]})
