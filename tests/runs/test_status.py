"""A run says where it stands while it is in work, and leaves nothing of that behind."""

import pytest

from icl_lab.base.errors import Diverged, Stopped
from icl_lab.pipeline import sweep
from icl_lab.runs import manifest, status
from icl_lab.runs.status import read_status, report_status
from icl_lab.runs.verify import everything


@pytest.fixture
def words(monkeypatch):
    """All that runs say, in order; nothing is too early to be said."""
    monkeypatch.setattr(status, "EVERY", 0.0)
    before, said = status.publish, []

    def publish(path, data):
        before(path, data)
        said.append(read_status(path.parent))

    monkeypatch.setattr(status, "publish", publish)
    return said


@pytest.mark.slow
def test_a_training_and_its_test_are_told_and_nothing_is_left(tiny, lab, words):
    run = lab.store.run(tiny(), 0)
    sweep(run.spec, 0, lab)
    train, test = ([word for word in words if word.stage == stage] for stage in ("train", "test"))
    assert [word.done for word in train] == [0, 50, 60]
    assert train[-1].total == 60
    assert test[-1].done == test[-1].total
    assert not (run.folder / status.NAME).exists()
    assert status.NAME not in manifest.read(run.folder)
    assert [finding.state for finding in everything(lab.store.root)] == ["whole"]


@pytest.mark.slow
def test_one_that_is_stopped_leaves_no_word_and_goes_on(tiny, lab, words):
    spec = tiny("linear", "softmax", "train.steps=120")
    run = lab.store.run(spec, 0)
    object.__setattr__(lab, "stopping", lambda: bool(words) and words[-1].done >= 50)
    with pytest.raises(Stopped):
        sweep(spec, 0, lab)
    assert not (run.folder / status.NAME).exists()
    words.clear()
    object.__setattr__(lab, "stopping", lambda: False)
    sweep(spec, 0, lab)
    assert words[0].done >= 50


def test_minimum_gaps_between_words_hold(tmp_path, monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(status.time, "monotonic", lambda: next(now) / 4)
    with report_status(tmp_path) as report:
        for step in range(5):
            report("train", step, 10)
        assert read_status(tmp_path).done == 0
        report("test", 0, 3)
        assert read_status(tmp_path).stage == "test"
        for done in range(9):
            report("test", done, 9)
        assert read_status(tmp_path).done > 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, Diverged, OSError])
def test_the_word_goes_however_the_work_ends(tmp_path, error):
    def work():
        with report_status(tmp_path) as report:
            report("train", 0, 10)
            assert read_status(tmp_path).done == 0
            raise error("enough")

    with pytest.raises(error, match="enough"):
        work()
    assert list(tmp_path.iterdir()) == []


def test_a_word_of_another_version_is_none(tmp_path):
    assert read_status(tmp_path) is None
    (tmp_path / status.NAME).write_text('{"stage": "dance"}')
    assert read_status(tmp_path) is None
