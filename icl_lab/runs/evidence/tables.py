"""Files of runs as Parquet tables, and back: what one part of the evidence holds.

Six tables, each a file of a part: ``runs``, ``cells`` (rows of models in ``grid.csv``), ``references`` (rows of
reference predictors, which all grids of one test share), ``history``, ``errors`` (single prompts) and ``bounds`` (last
norm and read-out). ``results/evidence/README.md`` says what each column means. ``cells``, ``references`` and ``errors``
have a column of each axis in ``AXES``, and last one of each further axis that a run of the part has. A file that cannot
be put together again byte for byte from these columns is kept as it is, in the column ``other`` of ``runs``.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed, first_line
from icl_lab.base.files import checkout_hint, sha256
from icl_lab.runs.manifest import MEASURED_BY, SPEC

Files = Mapping[str, bytes]  # names below a run's folder -> bytes

GRID, ERRORS, HISTORY, READ_OUT = "grid.csv", "errors.safetensors", "history.csv", "read-out.safetensors"
ENV = "env.json"
REFERENCE = "reference:"
WHO, WHAT = ("task", "attn", "preset", "spec", "seed"), ("metric", "value", "stderr", "count")
AXES = ("sigma_x", "sigma_f", "noise", "sigma", "depth", "kept", "ignored", "pairs", "concentration", "length")
PLAIN = ("step", "loss", "length", "rate", "bound")  # columns of a history with a separate column here
LAST = ("norm.weight", "norm.bias", "read_out.weight", "read_out.bias")  # as in model/bound.py, which needs torch

WORD, NUMBER, SINGLE = pa.dictionary(pa.int32(), pa.string()), pa.float64(), pa.float32()
SINGLES = pa.list_(SINGLE)
RUN = [("key", pa.string()), *((name, WORD) for name in WHO[:-1]), ("seed", pa.int32())]
LABELS = [*((axis, NUMBER) for axis in AXES[:-1]), ("length", pa.int32())]
VALUES = [("metric", WORD), ("value", NUMBER), ("stderr", NUMBER), ("count", pa.int32())]
SCHEMAS = {
    "runs": pa.schema(
        [
            *RUN,
            *((name, WORD) for name in ("commit", "machine", "device")),
            *((name, pa.string()) for name in ("spec_json", "env_json", "files", "layout")),
            ("other", pa.map_(pa.string(), pa.binary())),
        ]
    ),
    "cells": pa.schema([("key", WORD), *RUN[1:], ("swap", WORD), ("test", WORD), *LABELS, *VALUES]),
    "references": pa.schema([("test", WORD), ("row", pa.int32()), ("reference", WORD), *LABELS, *VALUES]),
    "history": pa.schema(
        [
            ("key", WORD),
            ("step", pa.int32()),
            ("loss", NUMBER),
            ("length", pa.int32()),
            ("rate", NUMBER),
            ("bound", NUMBER),
            ("learned", SINGLES),
        ]
    ),
    "errors": pa.schema([("key", WORD), ("swap", WORD), *LABELS, ("errors", SINGLES)]),
    "bounds": pa.schema([("key", WORD), *((name.replace(".", "_"), SINGLES) for name in LAST)]),
}
TABLES = tuple(SCHEMAS)
AXIAL = ("cells", "references", "errors")  # tables with columns of axes
AXIS = re.compile("[a-z][a-z0-9_]{0,62}")  # a further axis: no case, since SQL ignores it
# Names of other columns, and those that a query over several parts needs for itself.
TAKEN = {"part", "file", "filename"}.union(*(columns.names for columns in SCHEMAS.values())) - set(AXES)
MOST = 2**29  # bytes of a table in memory
Stamps = dict[str, tuple[int, str]]  # names of files -> size and SHA-256
# All that the libraries raise on a table, a text or tensors that say something impossible.
MISFIT = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError),
    *(csv.Error, msgspec.MsgspecError, pa.ArrowException, SafetensorError),
)


class Tables:
    """The tables of one part; a table is read when something in it is asked for."""

    def __init__(self, folder: Path, rows: Mapping[str, int], read_file: Callable[[str], bytes]) -> None:
        """``rows`` is the number of rows of each file of the part; ``read_file`` returns a checked file by its name."""
        self.folder, self._row_counts, self._read_file = folder, rows, read_file
        self._tables: dict[str, pa.Table] = {}
        self._stamps: dict[str, Stamps] = {}
        self._shared: dict[tuple[str, tuple[str, ...]], list[tuple[int, str, str]]] = {}
        self._of_references: dict[str, pa.Table] = {}

    @classmethod
    def of(cls, part: Mapping[str, bytes]) -> Self:
        """Return the tables of a part that is not stored, by the names of its files."""
        return cls(Path("the new part"), {file: rows_of(file, data) for file, data in part.items()}, part.__getitem__)

    def table(self, name: str) -> pa.Table:
        """Return a table.

        Raises ``RunFailed`` where its file is missing, has another checksum, columns or rows, or is too large.
        """
        if name not in self._tables:
            file = f"{name}.parquet"
            if file not in self._row_counts:
                raise self._damaged(f"it has no {file}")
            data = self._read_file(file)
            try:
                self._tables[name] = _table(name, data, self._row_counts[file])
            except MISFIT as error:
                raise self._damaged(f"{file}: {first_line(error)}") from None
        return self._tables[name]

    @cached_property
    def keys(self) -> dict[str, int]:
        """The row of each run in the table ``runs``; raises ``RunFailed`` where a key is none, or there twice."""
        keys = self.table("runs")["key"].to_pylist()
        if wrong := [key for key in keys if key is None or not foreign.is_key(key)]:
            raise self._damaged(f"runs.parquet: {wrong[0]!r} is no run")
        if len(set(keys)) < len(keys):
            raise self._damaged("runs.parquet: a run is there twice")
        return {key: row for row, key in enumerate(keys)}

    def stamps(self, key: str) -> Stamps:
        """Size and SHA-256 of each file of a run, once it is put together.

        Raises ``RunFailed`` where a name is that of no file that a run has.
        """
        if key not in self._stamps:
            try:
                files = msgspec.json.decode(foreign.shallow(self._of("files", key).encode()), type=Stamps)
            except MISFIT as error:
                raise self._damaged(f"files of {key}: {first_line(error)}") from None
            if wrong := [name for name in files if not _is_file(name)]:
                raise self._damaged(f"files of {key}: no run has a file {wrong[0]!r}")
            self._stamps[key] = files
        return self._stamps[key]

    def content(self) -> str:
        """SHA-256 over the checksums of all files of all runs."""
        return _content({key: {name: stamp[1] for name, stamp in self.stamps(key).items()} for key in self.keys})

    def misfits(self, key: str) -> frozenset[str]:
        """The files of a run that fit no table and are kept as they are; ``measured.json`` has none."""
        return frozenset(name for name, _ in self._of("other", key) or () if not name.endswith(MEASURED_BY))

    def read(self, key: str, name: str) -> bytes:
        """Return a file of a run as it was; raises ``RunFailed`` where it is not what its checksum says."""
        size, checksum = self.stamps(key)[name]
        try:
            data = self._file(key, name)
            found = len(data), content_digest(name, data)
        except MISFIT as error:
            raise self._damaged(f"{key}/{name} cannot be put together: {first_line(error)}") from None
        if found != (size, checksum):
            raise self._damaged(f"{key}/{name} has another checksum")
        return data

    def cells(self, key: str, name: str) -> dict[str, Any] | None:
        """Return the columns of a grid in the order of its file; None where it fits no table and is text alone."""
        try:
            layout = self._layout(key).get(f"cells:{name.rpartition('/')[0]}")
            return None if layout is None else self._columns(*layout)
        except MISFIT as error:
            raise self._damaged(f"{key}/{name} cannot be put together: {first_line(error)}") from None

    def prompts(self, key: str, name: str) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
        """Return errors (cells, prompts) and labels by axis of single prompts; None where they fit no table."""
        place = name.rpartition("/")[0]
        try:
            return self._kept(key, place) if f"errors:{place}" in self._layout(key) else None
        except MISFIT as error:
            raise self._damaged(f"{key}/{name} cannot be put together: {first_line(error)}") from None

    def _damaged(self, why: str) -> RunFailed:
        return RunFailed(f"{self.folder} is damaged ({why}); {checkout_hint(self.folder)}")

    def _file(self, key: str, name: str) -> bytes:
        place, _, base = name.rpartition("/")
        if name in (SPEC, ENV):
            return str(self._of(f"{Path(name).stem}_json", key)).encode()
        other = dict(self._of("other", key))
        if name in other:
            return bytes(other[name])
        return {GRID: self._grid, HISTORY: self._history, ERRORS: self._errors, READ_OUT: self._read_out}[base](
            key, place
        )

    def _of(self, column: str, key: str) -> Any:
        return self.table("runs")[column][self.keys[key]].as_py()

    def _layout(self, key: str) -> dict[str, Any]:
        return dict(json.loads(foreign.shallow(self._of("layout", key).encode())))

    def _rows(self, table: str, key: str, place: str = "") -> pa.Table:
        start, count = self._layout(key)[f"{table}:{place}"][:2]
        return self.table(table).slice(start, count)

    def _grid(self, key: str, place: str) -> bytes:
        start, count, axes, test = self._layout(key)[f"cells:{place}"]
        own, shared = self.table("cells").slice(start, count), self._references(test, tuple(axes))
        task, attn, *rest = (own[name][0].as_py() for name in WHO)
        heads = {name: _line([task, name, *rest]) for name in {attn, *(name for _, name, _ in shared)}}
        cells = {name: own[name].to_pylist() for name in (*axes, *WHAT)}
        lines = [f"{heads[attn]},{numbers}" for numbers in _lines(cells, axes)]
        # References go back to the rows that they had, the first row first.
        for row, name, numbers in shared:
            lines.insert(row, f"{heads[name]},{numbers}")
        return ("\n".join([",".join([*WHO, *axes, *WHAT]), *lines]) + "\n").encode()

    def _columns(self, start: int, count: int, axes: Sequence[str], test: str) -> dict[str, Any]:
        """Columns of a grid; references stand in the rows that they had, which all grids of a test share."""
        own, shared = self.table("cells").slice(start, count), self._reference_cells(test)
        rows = shared["row"].to_numpy()
        from_reference = np.zeros(count + len(rows), dtype=bool)
        from_reference[rows] = True
        columns = dict[str, Any]()
        for name in (*WHO, *axes, *WHAT):
            mine = own[name].to_numpy()
            column = np.empty(len(from_reference), dtype=mine.dtype if name in ("seed", "count") else
                              float if name in (*axes, "value", "stderr") else object)  # fmt: skip
            column[~from_reference] = mine
            there = "reference" if name == "attn" else name
            column[from_reference] = shared[there].to_numpy() if there in shared.column_names else mine[0]
            columns[name] = column.astype(int) if name in ("seed", "count") else column
        return columns

    def _reference_cells(self, test: str) -> pa.Table:
        if test not in self._of_references:
            table = self.table("references")
            self._of_references[test] = table.filter(pc.equal(table["test"].cast(pa.string()), test))
        return self._of_references[test]

    def _references(self, test: str, axes: tuple[str, ...]) -> list[tuple[int, str, str]]:
        """Row, name and numbers of each cell of a reference; hundreds of grids share those of one test."""
        if (test, axes) not in self._shared:
            cells = self._reference_cells(test).to_pydict()
            self._shared[test, axes] = list(zip(cells["row"], cells["reference"], _lines(cells, axes), strict=True))
        return self._shared[test, axes]

    def _history(self, key: str, place: str) -> bytes:
        columns = self._layout(key)["history:"][2]
        table = self._rows("history", key).to_pydict()
        learned = [name for name in columns if name not in PLAIN]
        lines = [_line(columns)]
        for row, numbers in enumerate(table["learned"]):
            known = {name: table[name][row] for name in PLAIN} | dict(zip(learned, numbers or (), strict=True))
            lines.append(",".join("" if known[name] is None else repr(known[name]) for name in columns))
        return ("\n".join(lines) + "\n").encode()

    def _errors(self, key: str, place: str) -> bytes:
        return errors_file(*self._kept(key, place))

    def _kept(self, key: str, place: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        _, _, axes, prompts = self._layout(key)[f"errors:{place}"]
        table = self._rows("errors", key, place)
        cells = [np.asarray(values, dtype=np.float32) for values in table["errors"].to_numpy(zero_copy_only=False)]
        kept = np.stack(cells) if cells else np.empty((0, prompts), dtype=np.float32)
        return kept, {axis: table[axis].to_numpy().astype(np.float64) for axis in axes}

    def _read_out(self, key: str, place: str) -> bytes:
        _, _, shapes = self._layout(key)["bounds:"]
        row = self._rows("bounds", key).to_pylist()[0]
        return save(
            {name: np.array(row[name.replace(".", "_")], dtype=np.float32).reshape(shapes[name]) for name in shapes}
        )


def _table(name: str, data: bytes, rows: int) -> pa.Table:
    """A Parquet table; raises ``ValueError`` if it has columns of other names or types, or not ``rows`` rows.

    A page is decompressed whole before one row of it can be read, and its header, which pyarrow (26) neither shows nor
    bounds, may announce up to 2 GiB whatever the footer says: so much a file from elsewhere can take for a moment.
    """
    file = pq.ParquetFile(pa.BufferReader(data))
    columns = schema(name, file.schema_arrow.names)
    if not file.schema_arrow.equals(columns):
        raise ValueError("it has other columns")
    if file.metadata.num_rows != rows:
        raise ValueError(f"it has {file.metadata.num_rows:,} rows, not {rows:,}")
    _check_size(file.metadata)
    # A text that the file holds once may fill a column: few rows are read at a time, and what they take is summed.
    texts = {field.name for field in columns if field.type == pa.string() or pa.types.is_map(field.type)}
    longest = sum(size for column, size in _sizes(file.metadata) if column.split(".")[0] in texts)
    read, taken = list[pa.RecordBatch](), 0
    for batch in file.iter_batches(max(1, min(rows, MOST // (1 + longest)))):
        read, taken = [*read, batch], taken + batch.nbytes
        if taken > MOST:
            raise ValueError(f"it takes more than {MOST:,} bytes of memory")
    return pa.Table.from_batches(read, columns)


def schema(table: str, columns: Iterable[str]) -> pa.Schema:
    """Columns that a table should have: its own, and one of each further axis among ``columns``, by name.

    Raises ``ValueError`` where one that is not its own cannot be an axis.
    """
    own = SCHEMAS[table]
    further = sorted(set(columns) - set(own.names))
    if further and table not in AXIAL:
        raise ValueError("it has other columns")
    _check_axes(further)
    return pa.schema([*own, *((name, NUMBER) for name in further)])


def _check_axes(names: Iterable[str]) -> None:
    if any(name in TAKEN or not AXIS.fullmatch(name) for name in names):
        raise ValueError("it has other columns")


def _check_size(footer: pq.FileMetaData) -> None:
    """Raise ``ValueError`` where the footer of a table announces more than fits into ``MOST`` bytes of memory."""
    if (size := sum(size for _, size in _sizes(footer))) > MOST:
        raise ValueError(f"it takes {size:,} bytes of memory, at most {MOST:,} are read")


def _sizes(footer: pq.FileMetaData) -> Iterator[tuple[str, int]]:
    """Path of each column of each group of rows, and its bytes: as stored and not compressed, and 8 for each value."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        yield column.path_in_schema, column.total_uncompressed_size + 8 * column.num_values


def _is_file(name: str) -> bool:
    """True if the tables of a run, or of its test with another normalizer, may have a file of this name."""
    place, _, base = name.rpartition("/")
    if place:
        return place.startswith("swap-") and foreign.is_plain(place) and base in (GRID, ERRORS, MEASURED_BY)
    return base in (SPEC, ENV, GRID, HISTORY, ERRORS, READ_OUT, MEASURED_BY)


def errors_file(errors: np.ndarray, labels: Mapping[str, np.ndarray]) -> bytes:
    """``errors.safetensors`` of errors (cells, prompts) and the labels (cells,) of each axis, in their order."""
    return save({"errors": errors, **{f"axis {n} {axis}": values for n, (axis, values) in enumerate(labels.items())}})


def errors_of(data: bytes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Errors (cells, prompts) and labels by axis of an ``errors.safetensors``."""
    tensors = load(data)
    axes = sorted(name for name in tensors if name.startswith("axis "))
    return tensors["errors"], {name.split(" ", 2)[2]: tensors[name] for name in axes}


def agree(name: str, held: bytes, new: bytes) -> bool:
    """Equality of what two versions of a file say; of single prompts, in the cells that both have."""
    if not name.endswith(ERRORS):
        return content_digest(name, held) == content_digest(name, new)
    one, other = _by_cell(held), _by_cell(new)
    return all(np.array_equal(one[cell], other[cell], equal_nan=True) for cell in set(one) & set(other))


def adds(name: str, held: bytes, new: bytes) -> bool:
    """True where a new version of a file has single prompts of cells that the held one lacks."""
    return name.endswith(ERRORS) and bool(set(_by_cell(new)) - set(_by_cell(held)))


def _by_cell(data: bytes) -> dict[tuple[float, ...], np.ndarray]:
    errors, labels = errors_of(data)
    return dict(zip(zip(*(values.tolist() for values in labels.values()), strict=True), errors, strict=True))


def content_of(runs: Mapping[str, Files]) -> str:
    """SHA-256 over the checksums of all files of these runs."""
    return _content(
        {key: {name: content_digest(name, data) for name, data in files.items()} for key, files in runs.items()}
    )


def _content(checksums: Mapping[str, Mapping[str, str]]) -> str:
    lines = [f"{key}/{name} {files[name]}\n" for key, files in sorted(checksums.items()) for name in sorted(files)]
    return sha256("".join(lines).encode())


def rows_of(name: str, data: bytes) -> int:
    """Rows of a table; 0 for another file."""
    return int(pq.read_metadata(pa.BufferReader(data)).num_rows) if name.endswith(".parquet") else 0


def content_digest(name: str, data: bytes) -> str:
    """SHA-256 of what a file says: of tensors, names and numbers, since their header may be written otherwise."""
    if not name.endswith(".safetensors"):
        return sha256(data)
    tensors = load(data)
    parts = [
        f"{each} {tensors[each].dtype} {tensors[each].shape}\n".encode() + tensors[each].tobytes()
        for each in sorted(tensors)
    ]
    return sha256(b"".join(parts))


def encoded(runs: Mapping[str, Files]) -> dict[str, bytes]:
    """Return the files of a part that holds these runs, by their keys: a Parquet file for each table.

    Raises ``RunFailed`` where no run is called so or has such a file, and where they are more than one part can hold.
    """
    for key, files in runs.items():
        if wrong := [name for name in files if not _is_file(name)] or [""] * (not foreign.is_key(key)):
            raise RunFailed(f"{key}/{wrong[0]} is not taken into the evidence: it is no file of a run.")
    part = _part(runs, set())
    # What is written is read back: numbers that are spelled otherwise in a file would come back as other bytes.
    tables = Tables.of(part)
    lost = set()
    for key, name in ((key, name) for key, files in runs.items() for name in files):
        try:
            tables.read(key, name)
        except RunFailed:
            lost.add((key, name))
    return _part(runs, lost) if lost else part


def misfits(runs: Mapping[str, Files]) -> dict[str, frozenset[str]]:
    """Return by key the files of runs that fit no table and would be kept as they are."""
    tables = Tables.of(encoded({key: {n: d for n, d in files.items() if _is_file(n)} for key, files in runs.items()}))
    return {key: tables.misfits(key) for key in runs}


def _part(runs: Mapping[str, Files], whole: Container[tuple[str, str]]) -> dict[str, bytes]:
    """The tables of runs by their file names; files in ``whole``, by key and name, are kept as they are."""
    builder, part = _Builder(whole), dict[str, bytes]()
    for key, files in runs.items():
        builder.add(key, files)
    for name in TABLES:
        file = f"{name}.parquet"
        try:
            part[file] = _parquet(builder.table(name))
            _table(name, part[file], rows_of(file, part[file]))
        except ValueError as error:
            raise RunFailed(
                f"the table of {name} is too large for one part ({error}); add fewer runs at a time."
            ) from None
    return part


def _parquet(table: pa.Table) -> bytes:
    """One row group, zstd; lists of single-precision numbers by byte rank, everything but plain numbers as words."""
    lists = [f"{field.name}.list.element" for field in table.schema if field.type == SINGLES]
    words = [field.name for field in table.schema if field.type != SINGLES and field.name not in ("value", "loss")]
    file = pa.BufferOutputStream()
    pq.write_table(
        table,
        file,
        compression="zstd",
        compression_level=19,
        row_group_size=max(1, len(table)),
        use_dictionary=words,
        use_byte_stream_split=lists,
    )
    return bytes(file.getvalue().to_pybytes())


class _Builder:
    """Rows of the tables, added run by run."""

    def __init__(self, whole: Container[tuple[str, str]]) -> None:
        self.whole = whole  # keys and names of files that are kept as they are
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        self.tests: set[str] = set()

    def table(self, name: str) -> pa.Table:
        axes = {axis for table in AXIAL for row in self.rows[table] for axis in row} - TAKEN
        return pa.Table.from_pylist(self.rows[name], schema(name, axes if name in AXIAL else ()))

    def add(self, key: str, files: Files) -> None:
        spec, env = (json.loads(files[name]) if name in files else {} for name in (SPEC, ENV))
        layout, other = dict[str, Any](), dict[str, bytes]()
        for name in sorted(files, key=lambda name: name.endswith(ERRORS)):  # after the grid that names their swap
            data, (place, _, base) = files[name], name.rpartition("/")
            take = {GRID: self._grid, HISTORY: self._history, ERRORS: self._errors, READ_OUT: self._read_out}.get(base)
            if name in (SPEC, ENV):
                continue
            if take is None or (key, name) in self.whole:
                other[name] = data
                continue
            before = {table: len(rows) for table, rows in self.rows.items()}
            try:
                take(key, place, data, layout)
            except (ValueError, KeyError, IndexError, OverflowError, pa.ArrowException):
                for table, rows in self.rows.items():
                    del rows[before[table] :]
                other[name] = data
        *_, rule_name, version, seed = key.split("/")
        preset, _, spec_hash = version.rpartition("-")
        self.rows["runs"].append(
            {
                "key": key,
                "task": spec.get("task", key.split("/")[0]),
                "attn": spec.get("attn", rule_name),
                "preset": preset,
                "spec": spec_hash,
                "seed": int(seed.rpartition("-")[2]),
                "commit": env.get("commit"),
                "machine": env.get("machine"),
                "device": env.get("device"),
                "spec_json": files.get(SPEC, b"").decode(),
                "env_json": files.get(ENV, b"").decode(),
                "files": json.dumps({name: [len(data), content_digest(name, data)] for name, data in files.items()}),
                "layout": json.dumps(layout),
                "other": list(other.items()),
            }
        )

    def _grid(self, key: str, place: str, data: bytes, layout: dict[str, Any]) -> None:
        head, *rows = csv.reader(data.decode().splitlines())
        axes = head[len(WHO) : -len(WHAT)]
        if [*WHO, *axes, *WHAT] != head:
            raise ValueError("another grid than the tables are made for")
        _check_axes(axes)
        shared = [(row, line) for row, line in enumerate(rows) if line[1].startswith(REFERENCE)]
        own = [line for line in rows if not line[1].startswith(REFERENCE)]
        test = sha256(json.dumps([head, [(row, line[1], line[len(WHO) :]) for row, line in shared]]).encode())[:12]
        start = len(self.rows["cells"])
        swap = own[0][1].rpartition("->")[2] if place else ""
        for line in own:
            values = dict(zip(WHO, line, strict=False)) | {"key": key, "swap": swap, "test": test}
            self.rows["cells"].append(values | {"seed": int(line[4])} | _numbers(head, line))
        if test not in self.tests:
            self.tests.add(test)
            for row, line in shared:
                self.rows["references"].append({"test": test, "row": row, "reference": line[1], **_numbers(head, line)})
        layout[f"cells:{place}"] = [start, len(own), axes, test]

    def _history(self, key: str, place: str, data: bytes, layout: dict[str, Any]) -> None:
        columns, *rows = csv.reader(data.decode().splitlines())
        layout["history:"] = [len(self.rows["history"]), len(rows), columns]
        for line in rows:
            known = dict(zip(columns, line, strict=True))
            plain = {name: _read(name, known[name]) for name in PLAIN if name in known}
            learned = [float(known[name]) if known[name] else None for name in columns if name not in PLAIN]
            self.rows["history"].append({"key": key, **plain, "learned": learned})

    def _errors(self, key: str, place: str, data: bytes, layout: dict[str, Any]) -> None:
        errors, labels = errors_of(data)
        if errors.dtype != np.float32:
            raise ValueError("other errors than the tables are made for")
        _check_axes(labels)
        layout[f"errors:{place}"] = [len(self.rows["errors"]), len(errors), list(labels), errors.shape[1]]
        cells = layout.get(f"cells:{place}") if place else None
        swap = self.rows["cells"][cells[0]]["swap"] if cells else place.removeprefix("swap-")
        for row, values in enumerate(errors):
            where = {axis: float(numbers[row]) for axis, numbers in labels.items()}
            where |= {"length": int(where["length"])} if "length" in where else {}
            self.rows["errors"].append({"key": key, "swap": swap, **where, "errors": values})

    def _read_out(self, key: str, place: str, data: bytes, layout: dict[str, Any]) -> None:
        tensors = load(data)
        if not set(tensors) <= set(LAST):
            raise ValueError("other parameters than the tables are made for")
        layout["bounds:"] = [len(self.rows["bounds"]), 1, {name: list(tensors[name].shape) for name in sorted(tensors)}]
        self.rows["bounds"].append(
            {"key": key} | {name.replace(".", "_"): x.reshape(-1) for name, x in tensors.items()}
        )


def _read(name: str, text: str) -> float | int | None:
    if not text:
        return None
    return int(text) if name in ("step", "length") else float(text)


def _numbers(head: Sequence[str], line: Sequence[str]) -> dict[str, Any]:
    known = dict(zip(head, line, strict=True))
    found: dict[str, Any] = {axis: float(known[axis]) if known[axis] else None for axis in head[len(WHO) : -len(WHAT)]}
    if "length" in found:
        found["length"] = int(known["length"])
    number = {name: float(known[name]) if known[name] else None for name in ("value", "stderr")}
    return found | number | {"metric": known["metric"], "count": int(known["count"])}


def _lines(columns: Mapping[str, Sequence[Any]], axes: Sequence[str]) -> list[str]:
    labels = [["" if value is None else format(value, ".12g") for value in columns[axis]] for axis in axes]
    numbers = [["" if value is None else repr(value) for value in columns[name]] for name in ("value", "stderr")]
    return [",".join(row) for row in zip(*labels, columns["metric"], *numbers, map(str, columns["count"]), strict=True)]


def _line(fields: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
