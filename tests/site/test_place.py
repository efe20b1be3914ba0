"""Where a site is written: whole or not at all, and never over what somebody else made."""

import os
from pathlib import Path

import pytest

from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.extras.site import place

SITE = {"index.html": b"one", "runs/a.html": b"a"}


def there(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder):
    return {name: data for name, data in there(folder).items() if name != place.MARK}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "site"


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def test_a_second_site_takes_the_place_of_the_first(out, results):
    place.write(SITE, out)
    place.check(out, results, force=False)
    place.write({"index.html": b"two"}, out)
    assert written(out) == {"index.html": b"two"}
    assert [path.name for path in out.parent.iterdir()] in (["site", "results"], ["results", "site"])


def test_a_folder_with_other_things_is_refused_and_left_alone(out, results):
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    with pytest.raises(BadValue, match=r"thesis\.tex.*--force"):
        place.check(out, results, force=False)
    place.check(out, results, force=True)
    place.write(SITE, out)
    assert written(out) == {**SITE, "thesis.tex": b"mine"}


def test_what_was_put_into_a_site_later_is_somebody_elses(out, results):
    place.write(SITE, out)
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(BadValue, match=r"notes/mine\.txt"):
        place.check(out, results, force=False)


def test_results_and_folders_above_are_never_replaced(results, monkeypatch, tmp_path):
    for folder in (results, tmp_path, Path("/"), results / "runs" / "x", results / "evidence"):
        with pytest.raises(BadValue, match="--out"):
            place.check(folder, results, force=True)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(BadValue, match="--out"):
        place.check(Path(), results, force=True)


def test_a_link_is_refused(out, results, tmp_path):
    (tmp_path / "other").mkdir()
    out.symlink_to(tmp_path / "other")
    with pytest.raises(BadValue, match="link"):
        place.check(out, results, force=True)


@pytest.mark.parametrize("step", ["write_bytes", "rename"])  # while writing, and between the two moves
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("full")])
def test_cut_short_the_old_site_is_whole(out, monkeypatch, step, error):
    place.write(SITE, out)
    before, count = getattr(Path, step), []

    def second(path, how):
        count.append(path)
        if len(count) == 2:
            raise error
        return before(path, how)

    monkeypatch.setattr(Path, step, second)
    with pytest.raises((KeyboardInterrupt, RunFailed)):
        place.write({"index.html": b"two", "runs/a.html": b"b"}, out)
    assert written(out) == SITE
    assert [path.name for path in out.parent.iterdir()] == ["site"]


def test_killed_between_the_two_moves_the_next_look_puts_it_back(out, results):
    place.write(SITE, out)
    out.rename(out.with_name(".site-replaced"))
    place.check(out, results, force=False)
    assert written(out) == SITE


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, results):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFailed, match="cannot be written"):
        place.check(tmp_path / "file" / "site", results, force=False)


def test_a_file_that_vanishes_is_named(out, tmp_path):
    with pytest.raises(RunFailed, match=r"gone\.csv"):
        place.write({"files/gone.csv": tmp_path / "gone.csv"}, out)
    assert not out.exists()


def test_a_mark_that_is_no_list_of_names_hides_nothing(out, results):
    place.write(SITE, out)
    (out / place.MARK).write_text("[]")
    with pytest.raises(BadValue):
        place.check(out, results, force=False)


def test_pages_can_be_read_by_those_whom_the_umask_lets(out):
    place.write(SITE, out)
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o777 & ~mask
    assert (out / "index.html").stat().st_mode & 0o777 == 0o666 & ~mask
