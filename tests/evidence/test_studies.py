"""Studies that are taken in: numbers, tables and PNGs, checked, in one step, and no other study is written over."""

import json
import lzma
import re
from pathlib import Path

import pytest

from icl_lab.runs import study_folder
from icl_lab.runs.study_folder import Member, StudyRecord

BIG = "a,b\n" + "1,2\n" * 20_000
FILES = {"big.csv": BIG, "small.csv": "a\n1\n", "table.md": "| a |\n", "page.png": b"PNG", "page.svg": "<svg/>"}
FILES |= {"report.html": "<p>", "rest.json": "{}"}


def study(seeds, options=()):
    members = [Member("softmax", "linear", "softmax", "nano", "0", seed) for seed in range(seeds)]
    return StudyRecord("deviant", dict(options), members, command="icl-lab experiment some")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The repository's results, which commands find."""
    (tmp_path / "kept" / "evidence").mkdir(parents=True)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(tmp_path / "kept" / "evidence"))
    return tmp_path / "kept"


@pytest.fixture
def mine(tmp_path):
    """A study in results of one's own."""
    place = tmp_path / "mine" / "experiments" / "some-nano"
    study_folder.publish(study(2), place, FILES, {})
    return place


@pytest.fixture
def add(run, mine):
    """Take studies in, of the results of ``mine``."""
    return lambda *words: run("evidence", "add-studies", "--results", str(mine.parents[1]), *words, results=None)


def test_numbers_and_tables_are_kept_and_large_ones_compressed(kept, mine, add):
    there = kept / "experiments" / "some-nano"
    code, out, _ = add("--dry-run")
    assert (code, out) == (0, f"1 studies are whole; 1 of them would be new in {kept}: {there}\n")
    assert not there.exists()
    code, out, _ = add()
    assert (code, out) == (0, f"1 of 1 studies are new in {kept}; the others were there.\nnext: git add -f {there}\n")
    names = {"big.csv.xz", "small.csv", "table.md", "rest.json", "study.json"}
    assert {path.name for path in there.iterdir()} == names
    assert lzma.decompress((there / "big.csv.xz").read_bytes()).decode() == BIG
    study_folder.verify(there)
    assert add()[1] == f"0 of 1 studies are new in {kept}; the others were there.\n"
    assert add(str(mine), "--dry-run")[:2] == (0, f"1 studies are whole; 0 of them would be new in {kept}\n")


@pytest.mark.slow
def test_own_studies_of_a_checkout_lose_the_folder_own(kept, mine, add):
    own = mine.parents[1] / "own" / "experiments" / "other-nano"
    study_folder.publish(study(2), own, FILES, {})
    assert add(str(own))[0] == 0
    assert (kept / "experiments" / "other-nano" / "study.json").exists()
    assert add()[1].startswith("1 of 2 studies are new")


@pytest.mark.slow
def test_more_seeds_replace_fewer_and_no_other_study(kept, mine, add):
    add()
    there = kept / "experiments" / "some-nano"
    study_folder.publish(study(3), mine, {"small.csv": "a\n2\n"}, {})
    assert add()[0] == 0
    assert {path.name for path in there.iterdir()} == {"small.csv", "study.json"}  # of two seeds nothing is left
    for other in (study(2), study(3, {"prompts": 9})):
        study_folder.publish(other, mine, {"small.csv": "a\n3\n"}, {})
        for words in ((), ("--dry-run",)):
            code, out, err = add(*words)
            assert (code, out) == (1, "")
            assert err == f"icl-lab: {there}: another study is kept there; --replace puts yours in its place.\n"
    assert (there / "small.csv").read_text() == "a\n2\n"
    assert add("--replace")[0] == 0
    assert (there / "small.csv").read_text() == "a\n3\n"


@pytest.mark.parametrize("name", ["big.csv", "table.md", "study.json"])
@pytest.mark.slow
def test_a_damaged_study_is_not_taken_in_and_nothing_with_it(kept, mine, add, name):
    study_folder.publish(study(2), mine.with_name("a-first-one"), FILES, {})
    (mine / name).write_bytes((mine / name).read_bytes() + b" ")
    code, out, err = add()
    assert (code, out) == (1, "")
    assert "damaged or edited" in err
    assert len(err.splitlines()) == 1
    assert not (kept / "experiments").exists()


def test_a_picture_that_is_not_kept_is_not_looked_at(kept, mine, add):
    (mine / "page.svg").write_text("<svg><!-- of an older study --></svg>")
    (mine / "page.png").unlink()
    assert add()[0] == 0
    assert not (kept / "experiments" / "some-nano" / "page.png").exists()


def test_studies_of_the_repository_and_of_elsewhere_are_refused(kept, mine, add, run, tmp_path):
    study_folder.publish(study(2), kept / "experiments" / "some-nano", FILES, {})
    _, err = run.refused("evidence", "add-studies", "--results", str(kept), results=None)
    assert "is where the repository keeps them" in err
    assert (kept / "experiments" / "some-nano" / "report.html").exists()
    code, _, err = add(str(kept / "experiments" / "some-nano"))
    assert (code, f"not inside {mine.parents[1]}" in err) == (2, True)
    bare = mine.with_name("bare")
    bare.mkdir()
    code, _, err = add(str(bare))
    assert (code, "has no study.json" in err) == (1, True)


@pytest.mark.slow
def test_leftovers_go_though_nothing_is_new(kept, mine, add):
    add()
    parent = kept / "experiments"
    before = sorted(path.name for path in parent.iterdir())
    (parent / ".some-nano-staged-x" / "some-nano").mkdir(parents=True)
    (parent / "some-nano").rename(parent / ".some-nano-replaced")  # killed between its two moves
    code, out, err = add()
    assert (code, "0 of 1 studies are new" in out) == (0, True), err
    assert sorted(path.name for path in parent.iterdir()) == before


@pytest.mark.slow
def test_a_full_disk_leaves_what_was_kept(kept, mine, add, monkeypatch):
    add()
    there = kept / "experiments" / "some-nano"
    before = {path.name: path.read_bytes() for path in there.iterdir()}
    study_folder.publish(study(3), mine, FILES, {})

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("icl_lab.base.files.publish", full)
    code, _, err = add()
    assert (code, "cannot be written: No space left on device" in err) == (1, True)
    assert {path.name: path.read_bytes() for path in there.iterdir()} == before


def test_commands_of_the_repository_name_no_path_of_a_machine():
    """They are to be typed elsewhere."""
    results = Path(__file__).parents[2] / "results"
    records = [path for path in results.rglob("*.json") if not {"own", "runs"} & set(path.relative_to(results).parts)]
    commands = [line for path in records for line in re.findall(r'"command": (".*")', path.read_text())]
    assert len(commands) > 50
    assert [line for line in map(json.loads, commands) if re.search(r"""(^|[\s='"])[/~]\w""", line)] == []
