"""icl-lab site: where it writes, what it refuses, in one line each."""

import pytest

from icl_lab.extras.site.claims import Claims
from tests.site import made


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("icl_lab.extras.site.claims.judged", made.none)
    monkeypatch.chdir(tmp_path)
    store = made.store(tmp_path)
    made.finished(store, "ssa")
    return tmp_path


def test_it_writes_a_site_and_says_where(run, results):
    out, _ = run.ok("site")
    assert "1 runs, 0 studies" in out
    assert "next: open site/index.html" in out
    assert (results / "site" / "index.html").exists()
    assert run("site", "--out", "elsewhere")[0] == 0
    assert (results / "elsewhere" / "vendor" / "uPlot.LICENSE.txt").exists()


def test_damage_is_said_and_is_no_reason_to_stop(run, results):
    for grid in (results / "results").rglob("grid.csv"):
        grid.write_text("x")
    assert "1 of them is damaged" in run.ok("site")[1]


def test_claims_that_cannot_be_judged_end_the_command(run, results, monkeypatch):
    monkeypatch.setattr("icl_lab.extras.site.claims.judged", lambda *_: Claims(why_none="no ink", failed=True))
    out, err = run.failed("site")
    assert err == "icl-lab: no ink\n"
    assert "wrote site" in out
    assert "next:" not in out


def test_an_empty_or_missing_folder_gives_a_page(run, results):
    run.ok("site", results=results / "nothing")
    assert "icl-lab sweep" in (results / "site" / "index.html").read_text()
    assert not (results / "nothing").exists()


def test_a_foreign_folder_is_refused_before_reading(run, results, monkeypatch):
    (results / "mine").mkdir()
    (results / "mine" / "thesis.tex").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("icl_lab.extras.site.specifications.every", lambda *_: pytest.fail("read"))
        _, err = run.refused("site", "--out", "mine")
    assert (err.count("\n"), "thesis.tex" in err) == (1, True)
    run.ok("site", "--out", "mine", "--force")
    assert (results / "mine" / "thesis.tex").read_text() == "mine"
    assert (results / "mine" / "index.html").exists()
