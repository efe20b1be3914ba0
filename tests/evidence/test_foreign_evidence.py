"""Evidence from elsewhere, whose checksums are all right: what it names and holds is held against what a run is."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from icl_lab.base.errors import RunFailed
from icl_lab.runs.evidence import archive as archiving
from icl_lab.runs.evidence import tables
from icl_lab.runs.evidence.archive import Archive

REPOSITORY = Path(__file__).parents[2] / "results" / "evidence"
COMMANDS = (("verify",), ("list",), ("unpack", "--to", "target"))


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A folder with an archive of one run of the repository."""
    archive, repository = Archive(tmp_path_factory.mktemp("sent")), Archive(REPOSITORY)
    keys = (run.key for run in repository.runs() if run.key.startswith("linear/ssa/nano"))
    key = next(key for key in keys if len(repository.run(key).files()["errors.safetensors"]) > 1000)
    archive.add({key: repository.run(key).files()})
    return archive.root


@pytest.fixture
def received(sent, tmp_path, monkeypatch):
    """A copy of that archive, in a folder where commands run and find it."""
    folder = tmp_path / "received" / "evidence"
    shutil.copytree(sent, folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(folder))
    return Archive(folder)


def seal(archive, name="", table=None, **said):
    """Write a table into the one part, or says other things of it, with checksums that are right."""
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


def indexed(**said):
    """The index says other things of its one part."""

    def spoil(archive):
        (part,) = archive.parts
        told = {name: change(getattr(part, name)) for name, change in said.items()}
        archiving._write_index(archive.root, [msgspec.structs.replace(part, **told)])

    return spoil


INDEXES = {
    **{f"part {name!r}": indexed(name=lambda _, name=name: name)
       for name in ("../received", "/tmp", "a/b", "", ".hidden")},
    **{f"file {name}": indexed(files=lambda files, name=name: {**files, name: files["runs.parquet"]})
       for name in ("../x.parquet", "weights/../../x.safetensors", "/etc/passwd", "notes.txt")},
    **{f"seeds {seeds!r}": indexed(runs=lambda runs, seeds=seeds: dict.fromkeys(runs, seeds))
       for seeds in ("0-99999999999", "0-999999999", "x", "", "0--5")},
}  # fmt: skip


@pytest.mark.parametrize("spoil", INDEXES.values(), ids=INDEXES)
def test_an_index_has_plain_parts_tables_and_few_seeds(received, run, spoil):
    """A part is one plain word, its files are tables and weights, and seeds are counted before they are named."""
    spoil(received)
    for words in COMMANDS:
        refused(run, words, "no part, run or file of an archive")


def changed(name, change):
    """A table of the one part is what ``change`` makes of it."""

    def spoil(archive):
        seal(archive, name, change(stored(archive, name)))

    return spoil


def filled(name, column, value):
    """A column of a table holds one value in all rows."""
    return changed(name, lambda table: put(table, column, [value] * len(table)))


def further(name, axis, kind=None, at=None):
    """A column that could be one of a further axis, but for the table, its name, its type, or its place."""

    def change(table):
        column = pa.field(axis, kind or pa.float64())
        zeros = pa.array([0] * len(table), column.type)
        return table.append_column(column, zeros) if at is None else table.add_column(at, column, zeros)

    return changed(name, change)


def twice(table):
    column = pa.field("contrast", pa.float64())
    zeros, ones = [0.0] * len(table), [1.0] * len(table)
    return table.append_column(column, [zeros]).append_column(column, [ones])


def no_parquet(archive):
    data = b"PAR1 and nothing of it PAR1"
    (archive.root / archive.parts[0].name / "cells.parquet").write_bytes(data)
    file = archiving.PartFile(hashlib.sha256(data).hexdigest(), 0)
    indexed(files=lambda files: {**files, "cells.parquet": file})(archive)


def no_table(archive):
    (part,) = archive.parts
    (archive.root / part.name / "references.parquet").unlink()
    indexed(files=lambda files: {name: file for name, file in files.items() if name != "references.parquet"})(archive)


def layout(change):
    def laid_out(table):
        text = change(json.loads(table["layout"][0].as_py()))
        return put(table, "layout", [text if isinstance(text, str) else json.dumps(text)])

    return changed("runs", laid_out)


def packed_tensors(runs):
    """A file of errors that is kept as it is, and is no safetensors."""
    stamps = {"errors.safetensors": [3, "0" * 64]}
    return put(put(runs, "files", [json.dumps(stamps)]), "other", [[("errors.safetensors", b"abc")]])


CONTENTS = {
    "another type": changed("cells", lambda table: put(table, "value", ["x"] * len(table), pa.string())),
    "another number": changed("cells", lambda table: put(table, "value", [1.0, *table["value"].to_pylist()[1:]])),
    "no loss": changed("history", lambda table: table.drop_columns(["loss"])),
    "errors twice": changed("errors", lambda table: table.append_column("errors", table["errors"])),
    "plain texts": changed("cells", lambda table: put(table, "metric", table["metric"].to_pylist(), pa.string())),
    **{f"axis {name!r}": further("cells", name) for name in ("Contrast", "../x", "a\nb", "", "row", "part", "x" * 99)},
    **{f"axis of {name}": further(name, "contrast") for name in ("runs", "history", "bounds")},
    **{f"axis of {kind}": further("errors", "contrast", kind) for kind in (pa.float32(), pa.int64())},
    "axis first": further("cells", "contrast", at=0),
    "axis twice": changed("cells", twice),
    **{f"nulls in {name}": filled(*name.split(), None) for name in ("cells task", "cells count", "cells metric")},
    **{f"nulls in {name}": filled(*name.split(), None) for name in ("errors errors", "history learned")},
    **{f"nulls in {name}": filled(*name.split(), None) for name in ("references row", "runs spec_json", "runs layout")},
    **{f"no rows of {name}": changed(name, lambda table: table.slice(0, 0))
       for name in ("cells", "history", "errors", "references", "runs")},
    "other rows": indexed(files=lambda files: {
        **files, "cells.parquet": msgspec.structs.replace(files["cells.parquet"], rows=3)}),
    "no Parquet": no_parquet,
    "no table": no_table,
    "layout of a number": layout(lambda kept: 3),
    "layout of brackets": layout(lambda kept: "[" * 200_000),
    "layout of nothing": layout(lambda kept: {}),
    "layout of numbers": layout(lambda kept: dict.fromkeys(kept, 1)),
    "layout of words": layout(lambda kept: {name: ["a", "b", "c", "d"] for name in kept}),
    "layout far away": layout(lambda kept: {name: [10**30, *rest] for name, (_, *rest) in kept.items()}),
    "layout of other columns": layout(lambda kept: kept | {"history:": [0, 3, ["step", "loss", "a", "b"]]}),
    "layout of endless prompts": layout(lambda kept: kept | {"errors:": [0, 0, ["sigma_x"], 10**15]}),
    "tensors": changed("runs", packed_tensors),
    "files of brackets": filled("runs", "files", "[" * 200_000),
    "files of a number": filled("runs", "files", "3"),
    "files without sums": filled("runs", "files", '{"grid.csv": 3}'),
    "no files": filled("runs", "files", None),
}  # fmt: skip


def daily(name):
    """Of each group, such as columns of axes, its first two."""
    return [each for each in CONTENTS if each.split()[0] == name.split()[0]].index(name) < 2


@pytest.mark.parametrize(
    "spoil",
    [pytest.param(CONTENTS[name], marks=() if daily(name) else pytest.mark.exhaustive) for name in CONTENTS],
    ids=CONTENTS,
)
def test_wrong_content_with_right_sums_is_one_line(received, run, tmp_path, spoil):
    spoil(received)
    for words in (("verify",), ("unpack", "--to", "target")):
        refused(run, words, "damaged")
    assert not (tmp_path / "target").exists()
    code, _, err = run("evidence", "list")  # reads what runs there are, and nothing of them
    assert code in (0, 1)
    assert len(err.splitlines()) == code


def test_a_small_file_of_endless_rows_is_refused_unread(received, run, monkeypatch, tmp_path):
    rows = stored(received, "cells").slice(0, 1)
    seal(received, "cells", pa.concat_tables([rows] * 200_000).combine_chunks())
    (part,) = received.parts
    assert (received.root / part.name / "cells.parquet").stat().st_size < 50_000  # of 20 columns of 200,000 numbers
    monkeypatch.setattr(tables, "MOST", 2**23)
    read = parquet.ParquetFile.iter_batches

    def short(file, *words):
        assert file.metadata.num_rows < 200_000, "it was read"
        return read(file, *words)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", short)
    for words in (("verify",), ("unpack", "--to", "target")):
        refused(run, words, "bytes of memory, at most 8,388,608 are read")


def test_a_text_that_fills_a_column_is_not_read_to_its_end(received, run, monkeypatch):
    large = put(stored(received, "runs"), "spec_json", ["x" * 100_000])
    seal(received, "runs", pa.concat_tables([large] * 1_000).combine_chunks())
    (part,) = received.parts
    assert (received.root / part.name / "runs.parquet").stat().st_size < 50_000  # of 100 MB
    monkeypatch.setattr(tables, "MOST", 2**22)
    taken, read = [0], parquet.ParquetFile.iter_batches

    def counted(file, *words):
        for batch in read(file, *words):
            taken[0] += batch.nbytes
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    refused(run, ("verify",), "takes more than 4,194,304 bytes of memory")
    assert 2**22 < taken[0] < 2**23


def test_more_runs_than_one_part_can_hold_are_not_added(received, monkeypatch):
    (key,) = (run.key for run in received.runs())
    files, again = received.run(key).files(), Archive(received.root.with_name("other"))
    monkeypatch.setattr(tables, "MOST", 1_000)
    with pytest.raises(RunFailed, match=r"too large for one part.*add fewer runs at a time"):
        again.add({key: files})
    assert list(again.root.glob("*/*")) == []


@pytest.mark.parametrize("key", ["../b/c/seed-0", "a/b/c", "a/b/c/seed-01"])
def test_only_runs_are_added(received, key):
    with pytest.raises(RunFailed, match="it is no file of a run"):
        received.add({key: {"env.json": b"{}"}})
    with pytest.raises(RunFailed, match="it is no file of a run"):
        received.add({"a/b/c/seed-0": {"../x": b"{}"}})


DEEP = b"[" * 200_000


@pytest.mark.parametrize("data", [DEEP, b'{"parts": ' + DEEP, b"\xff", b"[]", b"null", b'{"parts": 3}'])
def test_an_index_of_anything_else_is_one_line(received, run, data):
    (received.root / archiving.INDEX).write_bytes(data)
    for words in COMMANDS:
        refused(run, words, "index.json is damaged or edited")


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(received, run):
    (part,) = received.parts
    for name, said in ((f"{part.name}/cells.parquet", "pipe or a device"), (archiving.INDEX, "damaged or edited")):
        (received.root / name).unlink()
        os.mkfifo(received.root / name)
        refused(run, ("verify",), said)
