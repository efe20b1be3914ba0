"""Commands that write tables, models and data sets for elsewhere."""

import re
import sys
from pathlib import Path

import click

import icl_lab as icl
from icl_lab.base import tables
from icl_lab.base.errors import BadValue, RunFailed, UnknownName
from icl_lab.base.files import write
from icl_lab.cli.options import evidence_option, gathered, read_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder, NewFile
from icl_lab.execute.where import Where
from icl_lab.runs import hub, study_folder
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
    help="latex: with booktabs and siunitx.  [default: latex; of --all parquet]",
)
@click.option("--table", "name", default="", help="Which one, e.g. comparison.  [default: what the command printed]")
@click.option("--number", default=1, show_default=True, type=click.IntRange(1, 1000), help="Of several printed ones.")
@click.option("--columns", default="", metavar="A,B", help="Only these, e.g. 'sigma_f 1,sigma_f 10', and the first.")
@click.option("--rows", default="", metavar="A,B", help="Only these, by what stands in the first column.")
@click.option("--out", "target", type=NewFile(), help="Write there, not to standard output.")
@evidence_option
@read_option
@gathered
def export(
    place: Path | None,
    everything: bool,
    kind: str | None,
    name: str,
    number: int,
    columns: str,
    rows: str,
    target: Path | None,
    where: Where,
) -> None:
    """Write a table as LaTeX, Markdown, CSV or Parquet.

    PLACE is the folder of a study or of a run, or a CSV file; with --all it is every run there is.
    """
    if everything is (place is not None) or (everything and (name or columns or rows)):
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
    asked = [[word.strip() for word in text.split(",") if word.strip()] for text in (columns, rows)]
    data = tables.encode(tables.chosen(found[number - 1], *asked), kind)
    if kind == "latex" and there[chosen].name == tables.PRINTED:  # what the column of that name is
        notes = re.findall(r"^Summary: [^;.]*", there[chosen].read_text(encoding="utf-8"), re.MULTILINE)
        data = "".join(f"% {note}\n" for note in notes[:1]).encode() + data
    _written(data, target)


def _written(data: bytes, target: Path | None) -> None:
    if target is None:
        sys.stdout.write(data.decode())
    else:
        write(target, data)
        out(f"wrote {target}")


@click.command()
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every cell of every finished run, as a data set.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**9), help="Of the run.")
@click.option("--to", "target", type=Folder(), help="Write the repository to this new folder.")
@click.option("--hub", "name", default="", metavar="OWNER/NAME", help="Send it to this repository of the hub.")
@click.option("--private", is_flag=True, help="Make that repository private, where it is new.")
@evidence_option
@read_option
@gathered
def publish(
    run: str | None, everything: bool, seed: int, target: Path | None, name: str, private: bool, where: Where
) -> None:
    """Write a trained model, or the cells of all runs, as a repository of the Hugging Face hub.

    RUN is a name of list runs, such as linear/ssa/lite: weights, numbers and a model card. With --all it is one table
    and a data set card. Nothing is sent without --hub.
    """
    if everything is (run is not None):
        raise click.UsageError("Name one RUN, or give --all, which is one table.")
    if (target is None) is not bool(name):
        raise click.UsageError("Give a new folder (--to), or a repository of the hub (--hub).")
    if run is None:
        cells = icl.cells(where=where)
        counts = {str(column): int(cells[column].nunique()) for column in cells}
        files = hub.of_cells(tables.typed(cells, "parquet"), counts, len(cells))
    else:
        files = hub.of_run(icl.find(run, seed, where=where).stored, name)
    if target is None:
        out(f"sent {', '.join(files)}: {hub.push(files, name, 'dataset' if everything else 'model', private)}")
    else:
        hub.write(files, target)
        out(f"wrote {target}: {', '.join(files)}")
