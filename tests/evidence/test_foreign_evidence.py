"""Evidence from elsewhere, whose checksums are all right: what it names and holds is held against what a run is."""

import hashlib
import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from icl_lab.evidence import archive as archiving
from icl_lab.evidence import tables
from icl_lab.evidence.archive import Archive

REPOSITORY = Path(__file__).parents[2] / "results" / "evidence"
COMMANDS = (("verify",), ("list",), ("unpack", "--to", "target"))


@pytest.fixture
def received(tmp_path, monkeypatch):
    """An archive of one run of the repository, in a folder where commands run and find it."""
    folder = tmp_path / "received" / "evidence"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(folder))
    archive, repository = Archive(folder), Archive(REPOSITORY)
    key = next(run.key for run in repository.runs() if run.key.startswith("linear/ssa/nano"))
    archive.add({key: repository.run(key).files()})
    return archive


def seal(archive, name="", table=None, **said):
    """Writes a table into the one part, or says other things of it, with checksums that are right."""
    (part,) = archive.parts
    files = dict(part.files)
    if table is not None:
        path = archive.root / part.name / f"{name}.parquet"
        parquet.write_table(table, path, compression="zstd")
        files[path.name] = archiving.PartFile(hashlib.sha256(path.read_bytes()).hexdigest(), len(table))
    archiving._write_index(archive.root, [msgspec.structs.replace(part, files=files, **said)])


def stored(archive, name):
    (part,) = archive.parts
    return parquet.read_table(archive.root / part.name / f"{name}.parquet", schema=tables.SCHEMAS[name])


def put(table, column, values, kind=None):
    at = table.column_names.index(column)
    field = table.schema.field(at).with_type(kind or table.schema.field(at).type)
    return table.set_column(at, field, [pa.array(values, field.type)])


def refused(run, words, said=""):
    code, out, err = run("evidence", *words)
    assert code != 0, (words, out)
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    assert said in err
    return err


@pytest.mark.parametrize(
    "key",
    ["../../../seed-0", "/a/b/seed-0", "linear/ssa/../seed-0", "a/b/c/d/seed-0", "a/b/c/seed-0/../../../../x/seed-0"],
)
def test_a_run_is_named_by_four_plain_words(received, run, tmp_path, key):
    runs = put(stored(received, "runs"), "key", [key])
    seal(received, "runs", runs, runs=archiving._seeds_of([key]))
    before = sorted(tmp_path.rglob("*"))
    for words in COMMANDS:
        refused(run, words, "no part, run or file of an archive")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("named", ["linear/ssa/smoke-01234567/seed-0", "../a/b/seed-0", "linear/ssa/a/seed-x", None])
def test_a_table_of_other_runs_than_the_index_names_is_refused(received, run, tmp_path, named):
    seal(received, "runs", put(stored(received, "runs"), "key", [named]))
    for words in (("verify",), ("unpack", "--to", "target")):
        refused(run, words, "is damaged")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "name", ["../../../../../../beside", "/beside", "notes.txt", "swap-../../x/grid.csv", "swap-a/env.json", ".bashrc"]
)
def test_only_files_of_a_run_are_unpacked(received, run, tmp_path, name):
    data, runs = b"planted", stored(received, "runs")
    name = str(tmp_path / name[1:]) if name[0] == "/" else name
    stamps = {name: [len(data), hashlib.sha256(data).hexdigest()]}
    runs = put(put(runs, "files", [json.dumps(stamps)]), "other", [[(name, data)]])
    seal(received, "runs", runs, content=tables._content({runs["key"][0].as_py(): {name: stamps[name][1]}}))
    before = sorted(tmp_path.rglob("*"))
    for words in COMMANDS:
        refused(run, words, "no run has a file")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["../received", "/tmp", "a/b", "", ".hidden"])
def test_a_part_is_one_plain_word(received, run, name):
    (part,) = received.parts
    archiving._write_index(received.root, [msgspec.structs.replace(part, name=name)])
    for words in COMMANDS:
        refused(run, words, "no part, run or file of an archive")


@pytest.mark.parametrize("name", ["../x.parquet", "weights/../../x.safetensors", "/etc/passwd", "notes.txt"])
def test_a_part_has_tables_and_weights(received, run, name):
    (part,) = received.parts
    seal_of = part.files["runs.parquet"]
    archiving._write_index(received.root, [msgspec.structs.replace(part, files={**part.files, name: seal_of})])
    for words in COMMANDS:
        refused(run, words, "no part, run or file of an archive")


@pytest.mark.parametrize("seeds", ["0-99999999999", "0-999999999", "x", "", "0--5"])
def test_seeds_are_counted_before_they_are_named(received, run, seeds):
    (part,) = received.parts
    archiving._write_index(received.root, [msgspec.structs.replace(part, runs=dict.fromkeys(part.runs, seeds))])
    for words in COMMANDS:
        refused(run, words, "no part, run or file of an archive")
