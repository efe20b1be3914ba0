"""A grid apart: what all grids of one test have in common, and what is one model's own.

Labels of the cells and the rows of the references are the same in every grid of a task and a test (both come from the
same prompts). They are stored once, as a frame; of a model the values remain. Putting both together gives every byte.
"""

import csv
import io
from collections.abc import Sequence

REFERENCE = "reference:"
WHO, WHAT = 5, 3  # columns: task, attn, preset, spec, seed; value, stderr, count


def split(grid: bytes) -> tuple[bytes, bytes] | None:
    """Returns (frame, own) of a ``grid.csv``, which ``join`` puts together again; None where that would lose a byte.

    A line of the frame is ``axes,metric`` of a row of the model, or the name of a reference, a tab and the rest.
    """
    try:
        head, *lines = grid.decode().split("\n")
    except UnicodeDecodeError:
        return None
    rows = list(csv.reader(lines[:-1]))
    model = next((row for row in rows if len(row) > WHO and not row[1].startswith(REFERENCE)), None)
    if model is None or any(len(row) != len(rows[0]) for row in rows):
        return None
    frame, values = [head], list[list[str]]()
    for row in rows:
        if row[1].startswith(REFERENCE):
            frame.append(f"{row[1]}\t{_line(row[WHO:])}")
        else:
            frame.append(_line(row[WHO:-WHAT]))
            values.append(row[-WHAT:])
    # By columns: numbers of one kind side by side compress better.
    own = [_line(model[:WHO]), _line(model[:1]), _line(model[2:WHO]), *(row[i] for i in range(WHAT) for row in values)]
    made = "\n".join(frame).encode(), "\n".join(own).encode()
    return made if join(*made) == grid else None


def join(frame: bytes, own: bytes) -> bytes:
    """Returns the ``grid.csv`` that was split."""
    head, *lines = frame.decode().split("\n")
    prefix, task, rest, *columns = own.decode().split("\n")
    count = len(columns) // WHAT
    values = zip(*(columns[i * count : (i + 1) * count] for i in range(WHAT)), strict=True)
    made = [head]
    for line in lines:
        name, tab, row = line.partition("\t")
        made.append(f"{task},{name},{rest},{row}" if tab else f"{prefix},{name},{','.join(next(values))}")
    return ("\n".join(made) + "\n").encode()


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
