"""The texts of stored studies, which are drawn anew from their tables."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from docs import tables
from icl_lab.base.errors import RunFailed
from icl_lab.claims import record
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results"
STUDY = "experiments/images-weights-nano"


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The text of a stored study, in a repository of this study and one page."""
    (tmp_path / "results" / "evidence").parent.mkdir()
    (tmp_path / "results" / "evidence").symlink_to(RESULTS / "evidence")
    shutil.copytree(RESULTS / STUDY, tmp_path / "results" / STUDY)
    (tmp_path / "page.md").write_text("A page.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables, "pages", lambda root: [root / "page.md"])
    return Path("results") / STUDY / "table.md"


def script(*words):
    done = CliRunner().invoke(tables.main, words)
    return done.exit_code, done.stdout, done.stderr


def basis():
    """Checksum of what the record of claims is judged from, which words are not."""
    return record.basis(Path("experiments"), Store(Path("results"), Archive(Path("results/evidence"))))


def altered(text):
    return text.replace("At the last answer", "By the last answer", 1).replace("| normalizer |", "| rule |", 1)


def test_a_text_that_was_altered_is_drawn_anew(stored):
    before = stored.read_text()
    stored.write_text(altered(before))
    assert stored.read_text() != before
    code, _, err = script("--check")
    assert code == 1
    assert str(stored) in err
    assert stored.read_text() == altered(before)
    assert script()[:2] == (0, f"wrote {stored}\n")
    assert stored.read_text() == before
    study_folder.verify(stored.parent)


def test_old_words_are_drawn_anew_and_sealed(stored):
    now, before = stored.read_text(), basis()
    study_folder.reword(stored, altered(now))
    study_folder.verify(stored.parent)
    assert basis() == before
    assert script()[:2] == (0, f"wrote {stored}\n")
    assert stored.read_text() == now
    study_folder.verify(stored.parent)
    assert basis() == before
    assert script("--check")[:2] == (0, "1 pages are in step.\n")


def test_what_tables_do_not_hold_stays(stored):
    """A number that no table of today has, and verdicts, which stand below the tables."""
    more = stored.read_text().replace("\nMade by", "\n* of an older table: 0.123456\n\nMade by")
    study_folder.reword(stored, more)
    assert script("--check")[0] == 0
    stored.write_text(f"{more}| a verdict |\n")
    with pytest.raises(RunFailed, match=r"table\.md is damaged or edited; take it from the repository again"):
        list(tables.texts(Path()))
