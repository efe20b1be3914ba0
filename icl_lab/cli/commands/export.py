"""The command that writes a table for elsewhere."""

import sys
from pathlib import Path

import click

import icl_lab as icl
from icl_lab import tables
from icl_lab.cli.output import out
from icl_lab.cli.values import NewFile
from icl_lab.errors import BadValue, RunFailed, UnknownName
from icl_lab.runs import study_folder
from icl_lab.runs.verify import check_file


@click.command()
@click.argument("place", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--to",
    "kind",
    type=click.Choice(["latex", "markdown", "csv", "parquet"]),
    default="latex",
    show_default=True,
    help="latex: with the rules of booktabs.",
)
@click.option("--table", "name", default="", help="Which one, e.g. comparison.  [default: what the command printed]")
@click.option("--number", default=1, show_default=True, type=click.IntRange(1, 1000), help="Of several printed ones.")
@click.option("--out", "target", type=NewFile(), help="Write there, not to standard output.")
def export(place: Path, kind: str, name: str, number: int, target: Path | None) -> None:
    """Write a table as LaTeX, Markdown, CSV or Parquet.

    PLACE is the folder of a study or of a run, or a CSV file.
    """
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
    if kind == "parquet" and target is None:
        raise BadValue("Parquet is no text: name a file with --out.")
    text = icl.export(found[number - 1], kind, target)
    if target is None:
        sys.stdout.write(text)
    else:
        out(f"wrote {target}")
