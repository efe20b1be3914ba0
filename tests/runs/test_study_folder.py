"""The folder of a study: its name, its record, and that nothing is written over another study."""

import lzma
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from icl_lab.base import files
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.figures.files import publish_folder
from icl_lab.runs import study_folder
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import RECORD, StudyRecord


@pytest.fixture
def record(tiny, lab):
    """A study of softmax with so many seeds, and so many prompts."""

    def build(seeds=1, prompts=64, command="icl-lab deviant"):
        runs = [lab.store.run(tiny(), seed) for seed in range(seeds)]
        return StudyRecord.of("deviant", {"prompts": prompts, "factors": (1.0, 10.0)}, {"softmax": runs}, command)

    return build


def keep(folder, study):
    folder.mkdir(parents=True)
    (folder / RECORD).write_bytes(study.json())


def test_the_name_hangs_on_the_question_not_on_the_command(record):
    name = record().usual_name("at-3")
    assert name.startswith("deviant-linear-smoke-at-3-")
    assert record(command="make deviant").usual_name("at-3") == name
    assert record(seeds=2).usual_name("at-3") != name
    assert record(prompts=65).usual_name("at-3") != name


def test_a_record_comes_back_from_its_file(record, tmp_path):
    keep(tmp_path / "a", record(2))
    assert study_folder.read(tmp_path / "a") == record(2)
    assert study_folder.read(tmp_path) is None
    (tmp_path / "a" / RECORD).write_text('{"kind": 3}')
    with pytest.raises(RunFailed, match="cannot be read"):
        study_folder.read(tmp_path / "a")


@pytest.mark.parametrize("name", ["../beside.csv", "/etc/hostname", "inner/x.csv", ".hidden.csv", "..", "C:x.csv"])
def test_a_record_names_files_of_its_folder_alone(record, tmp_path, name):
    keep(tmp_path / "a", record().sealed({name: b"1"}))
    (tmp_path / "beside.csv").write_bytes(b"1")
    for use in (study_folder.read, study_folder.verify):
        with pytest.raises(RunFailed, match="is no file of its folder"):
            use(tmp_path / "a")


def test_a_table_that_unpacks_without_end_is_damaged(record, tmp_path, monkeypatch):
    data = b"0" * 1_000_000
    keep(tmp_path / "a", record().sealed({"x.csv": data}))
    (tmp_path / "a" / "x.csv.xz").write_bytes(lzma.compress(data))
    study_folder.verify(tmp_path / "a")
    monkeypatch.setattr(study_folder, "UNPACKED", 999_999)
    with pytest.raises(RunFailed, match=r"x\.csv\.xz is damaged"):
        study_folder.verify(tmp_path / "a")


def test_a_record_of_endless_brackets_is_refused(record, tmp_path):
    keep(tmp_path / "a", record())
    deep = b'{"options": ' + b"[" * 200_000 + b"]" * 200_000
    (tmp_path / "a" / RECORD).write_bytes(deep + b', "kind": "a", "runs": []}')
    with pytest.raises(RunFailed, match="nested too deeply"):
        study_folder.read(tmp_path / "a")


def test_more_seeds_replace_a_study_and_fewer_do_not(record, tmp_path):
    keep(tmp_path / "a", record(2))
    assert study_folder.free(tmp_path / "a", record(2))
    assert study_folder.free(tmp_path / "a", record(3))
    assert not study_folder.free(tmp_path / "a", record(1))
    assert not study_folder.free(tmp_path / "a", record(3, prompts=65))


def test_another_study_is_not_written_over_unless_forced(record, tmp_path):
    keep(tmp_path / "mine", record(2))
    with pytest.raises(BadValue, match=r"another study \(icl-lab deviant\); give another --name, or --force"):
        study_folder.place(record(1), tmp_path, "mine")
    assert study_folder.place(record(1), tmp_path, "mine", force=True) == tmp_path / "mine"
    (tmp_path / "notes").mkdir()
    assert study_folder.place(record(1), tmp_path, "notes") == tmp_path / "notes"
    (tmp_path / "notes" / "todo.txt").write_text("mine")
    with pytest.raises(BadValue, match="files of something else"):
        study_folder.place(record(1), tmp_path, "notes")


@pytest.mark.parametrize(
    "name",
    [
        *("..", "../elsewhere", "/tmp/x", "runs/linear/ssa", "runs", "evidence", "a/../../b", "."),
        *(" ", " a", "a/ /b", "RUNS", "./runs", "runs/", "bench/x", "experiments", "link/x", "link"),
    ],
)
def test_a_name_stays_inside_the_results_folder(record, tmp_path, name):
    (tmp_path / "link").symlink_to(tmp_path.parent)
    with pytest.raises(BadValue, match="a folder inside the results folder"):
        study_folder.place(record(), tmp_path, name)


def test_a_name_is_no_file_and_not_endless(record, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(BadValue, match="is a file, or lies below one"):
            study_folder.place(record(), tmp_path, name)
    with pytest.raises(BadValue, match="at most 200 bytes, got 300"):
        study_folder.place(record(), tmp_path, "é" * 150)


def test_an_edited_file_is_told_from_the_one_that_was_written(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"deviant.csv": "1,2\n", "report.html": "<p>"}, {})
    study_folder.verify(folder)
    (folder / "deviant.csv").write_text("1,3\n")
    with pytest.raises(RunFailed, match=r"deviant.csv is damaged or edited.*make it again: icl-lab deviant"):
        study_folder.verify(folder)
    # Large tables may be kept compressed, pages and pictures may be missing, numbers may not.
    (folder / "deviant.csv").unlink()
    (folder / "report.html").unlink()
    (folder / "deviant.csv.xz").write_bytes(lzma.compress(b"1,2\n"))
    study_folder.verify(folder)
    (folder / "deviant.csv.xz").write_bytes(lzma.compress(b"1,3\n"))
    with pytest.raises(RunFailed, match=r"deviant.csv.xz is damaged or edited"):
        study_folder.verify(folder)
    (folder / "deviant.csv.xz").write_bytes(b"1,2\n")
    with pytest.raises(RunFailed, match=r"deviant.csv.xz is damaged or edited"):
        study_folder.verify(folder)
    (folder / "deviant.csv.xz").unlink()
    with pytest.raises(RunFailed, match=r"deviant.csv is missing"):
        study_folder.verify(folder)
    # One that was packed when it was sealed is held against the checksum of what was packed.
    study_folder.publish(record(), folder, {"deviant.csv.xz": lzma.compress(b"1,2\n")}, {})
    study_folder.verify(folder)
    (folder / "deviant.csv.xz").unlink()
    with pytest.raises(RunFailed, match=r"deviant.csv.xz is missing"):
        study_folder.verify(folder, pictures=False)


def test_numbers_are_read_though_a_picture_is_old(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"deviant.csv": "1,2\n", "report.html": "<p>"}, {})
    (folder / "report.html").write_text("<p>older")
    study_folder.verify(folder, pictures=False)
    with pytest.raises(RunFailed, match=r"report.html is damaged or edited"):
        study_folder.verify(folder)
    (folder / "deviant.csv").write_text("1,3\n")
    with pytest.raises(RunFailed, match=r"deviant.csv is damaged or edited"):
        study_folder.verify(folder, pictures=False)


def test_an_edited_record_is_told_from_the_one_that_was_written(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"deviant.csv": "1,2\n"}, {})
    whole = (folder / RECORD).read_text()
    for old, new in (("icl-lab deviant", "icl-lab Deviant"), ('"seal": "', '"seal": "0'), (whole, whole + "\n")):
        (folder / RECORD).write_text(whole.replace(old, new))
        with pytest.raises(RunFailed, match=r"study\.json is damaged or edited"):
            study_folder.verify(folder)
    (folder / RECORD).unlink()
    with pytest.raises(RunFailed, match=r"a has no study\.json, which says what its files are"):
        study_folder.verify(folder)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != RECORD}


def test_a_study_replaces_the_one_before_and_nothing_else(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"old.csv": "1", "both.csv": "1"}, {})
    (folder / "notes.txt").write_text("mine")
    (folder / "old.csv.xz").write_text("packed")
    study_folder.publish(record(2), folder, {"new.csv": "2", "both.csv": "2"}, {})
    assert contents(folder) == {"notes.txt": "mine", "new.csv": "2", "both.csv": "2"}
    assert study_folder.read(folder).runs == record(2).runs
    study_folder.verify(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"a", ".publishing.lock"}


def test_a_damaged_record_is_written_over(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"x.csv": "1"}, {})
    (folder / RECORD).write_text("{")
    study_folder.publish(record(), folder, {"x.csv": "2"}, {})
    study_folder.verify(folder)


PUBLISHES = """
import sys
from pathlib import Path
from icl_lab.runs import study_folder
from icl_lab.runs.study_folder import StudyRecord
who, folder = sys.argv[1], Path(sys.argv[2])
made = StudyRecord("compare", {"who": who}, [])
print("ready", flush=True)
for _ in range(60):
    study_folder.publish(made, folder, {f"{name}.csv": who for name in "abcdef"}, {})
"""


@pytest.mark.exhaustive
def test_two_writers_leave_the_files_of_one(tmp_path):
    """Wherever somebody looks in the meantime, a folder that is there is whole and of one of the two."""
    folder = tmp_path / "a"
    words = [sys.executable, "-c", PUBLISHES]
    writers = [subprocess.Popen([*words, who, str(folder)], stdout=subprocess.PIPE) for who in "xy"]
    for writer in writers:
        writer.stdout.readline()
    while any(writer.poll() is None for writer in writers):
        time.sleep(0.001)
    for writer in writers:
        assert writer.wait() == 0
        writer.stdout.close()
    study_folder.verify(folder)
    assert set(contents(folder)) == {f"{name}.csv" for name in "abcdef"}
    assert set(contents(folder).values()) == {study_folder.read(folder).options["who"]}


def test_an_interrupted_replacement_is_undone(record, tmp_path):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"x.csv": "old"}, {})
    folder.rename(tmp_path / ".a-replaced")  # as a killed process leaves it
    assert study_folder.place(record(2), tmp_path, "a") == folder
    assert contents(folder) == {"x.csv": "old"}
    (tmp_path / ".a-replaced").mkdir()  # killed after both
    study_folder.place(record(2), tmp_path, "a")
    assert contents(folder) == {"x.csv": "old"}
    assert not (tmp_path / ".a-replaced").exists()


@pytest.mark.parametrize("fails", ["publish", "rename"])
def test_a_full_disk_leaves_a_study_as_it_was(record, tmp_path, monkeypatch, fails):
    folder = tmp_path / "a"
    study_folder.publish(record(), folder, {"x.csv": "old", "y.csv": "old"}, {})
    publish, rename = files.publish, Path.rename

    def full(path, data):
        if path.name == "y.csv":
            raise OSError(28, "No space left on device")
        publish(path, data)

    def moved(self, target):
        if "staged" in str(self):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "publish", full) if fails == "publish" else patch.setattr(Path, "rename", moved)
        with pytest.raises(RunFailed, match="No space left"):
            study_folder.publish(record(2), folder, {"x.csv": "new", "y.csv": "new"}, {})
    assert contents(folder) == {"x.csv": "old", "y.csv": "old"}
    study_folder.verify(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"a", ".publishing.lock"}


def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    publish_folder(tmp_path / "a", {"x.csv": "old", "y.csv": "old"}, {})

    def full(path, data):
        if path.name == "y.csv":
            raise OSError(28, "No space left on device")
        path.write_bytes(data)

    monkeypatch.setattr("icl_lab.figures.files.publish", full)
    with pytest.raises(RunFailed, match="No space left"):
        publish_folder(tmp_path / "a", {"x.csv": "new", "y.csv": "new"}, {})
    assert {path.name: path.read_text() for path in (tmp_path / "a").iterdir()} == {"x.csv": "old", "y.csv": "old"}


@pytest.fixture
def groups(tiny, tmp_path):
    """Two normalizers with two finished seeds each, as far as a store can tell."""
    store, found = Store(tmp_path), {}
    for attn in ("softmax", "ssa"):
        found[attn] = [store.run(tiny(attn=attn), seed) for seed in (0, 1)]
        for run in found[attn]:
            run.folder.mkdir(parents=True)
            run.begin()
            (run.folder / "grid.csv").write_text("there")
    return found


def test_a_record_finds_its_runs_again(groups, tmp_path):
    known = StudyRecord.of("compare", {"baseline": "softmax"}, groups, "icl-lab compare")
    assert study_folder.runs_of(known, Store(tmp_path)) == groups


def test_a_swapped_rule_is_part_of_what_a_run_is(groups, tmp_path):
    swapped = {"swapped": [run.swapped("ssmax") for run in groups["softmax"]]}
    for run in swapped["swapped"]:
        run.place.mkdir()
        (run.place / "grid.csv").write_text("there")
    known = StudyRecord.of("compare", {}, {**groups, **swapped}, "")
    assert study_folder.runs_of(known, Store(tmp_path))["swapped"] == swapped["swapped"]


def test_a_run_that_is_not_stored_is_named(groups, tmp_path):
    known = StudyRecord.of("compare", {}, groups, "")
    (groups["ssa"][1].folder / "grid.csv").unlink()
    with pytest.raises(RunFailed, match=r"1 runs of this study are not stored: linear ssa smoke-\w{8} seed 1"):
        study_folder.runs_of(known, Store(tmp_path))


def test_folders_of_studies_are_found_by_an_option(record, tmp_path):
    for name, options in (("a", {"baseline": "softmax"}), ("b/c", {"baseline": "ssa"}), ("d", {"prompts": 3})):
        (tmp_path / name).mkdir(parents=True)
        study = msgspec.structs.replace(record(), options=options)
        (tmp_path / name / RECORD).write_bytes(study.json())
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / RECORD).write_text("{")
    found = study_folder.folders(tmp_path, "baseline")
    assert found == [tmp_path / "a", tmp_path / "b" / "c", tmp_path / "e"]
