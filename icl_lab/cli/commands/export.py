"""The command that writes a table for elsewhere."""

import sys
from pathlib import Path

import click

import icl_lab as icl
from icl_lab import tables
from icl_lab.cli.options import evidence_option, gathered, read_option
from icl_lab.cli.output import out
from icl_lab.cli.values import NewFile
from icl_lab.errors import BadValue, RunFailed, UnknownName
from icl_lab.files import write
from icl_lab.launch.where import Where
from icl_lab.runs import study_folder
from icl_lab.runs.verify import check_file

CELLS = ("parquet", "csv")  # a million rows are read by no person


@click.command()
@click.argument("place", type=click.Path(path_type=Path, exists=True), required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Every cell of every finished run, in one table (csv, parquet)."
)
@click.option(
    "--to",
    "kind",
    type=click.Choice(["latex", "markdown", "csv", "parquet"]),
    help="latex: with the rules of booktabs.  [default: latex; of --all parquet]",
)
@click.option("--table", "name", default="", help="Which one, e.g. comparison.  [default: what the command printed]")
@click.option("--number", default=1, show_default=True, type=click.IntRange(1, 1000), help="Of several printed ones.")
@click.option("--out", "target", type=NewFile(), help="Write there, not to standard output.")
@evidence_option
@read_option
@gathered
def export(
    place: Path | None, everything: bool, kind: str | None, name: str, number: int, target: Path | None, where: Where
) -> None:
    """Write a table as LaTeX, Markdown, CSV or Parquet.

    PLACE is the folder of a study or of a run, or a CSV file; with --all it is every run there is.
    """
    if everything is (place is not None) or (everything and name):
        raise click.UsageError("Name one PLACE, or give --all, which is one table.")
    kind = kind or ("parquet" if everything else "latex")
    if everything and kind not in CELLS:
        raise UnknownName("kind of table of all cells", kind, CELLS)
    if kind == "parquet" and target is None:
        raise BadValue("Parquet is no text: name a file with --out.")
    if place is None:
        _written(tables.typed(icl.cells(where=where), kind), target)
        return
    there = tables.stored(place)
    record = study_folder.read(place) if place.is_dir() else None
    if not name and record is not None and tables.PRINTED in record.files and "table" not in there:
        raise RunFailed(f"{place / tables.PRINTED} is missing; make it again: {record.command}")
    chosen = name or ("table" if "table" in there else next(iter(there)))
    if chosen not in there:
        raise UnknownName("table", chosen, there, f"They are those of {place}.")
    check_file(there[chosen])
    found = tables.read(there[chosen])
    if number > len(found):
        raise BadValue(f"{there[chosen]} holds {len(found)} tables, there is no number {number}.")
    _written(tables.encode(found[number - 1], kind), target)


def _written(data: bytes, target: Path | None) -> None:
    if target is None:
        sys.stdout.write(data.decode())
    else:
        write(target, data)
        out(f"wrote {target}")
