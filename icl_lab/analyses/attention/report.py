"""Attention maps for reading: the answers beside the truth, every weight as CSV, and a figure for print."""

import csv
import gzip
import io
from pathlib import Path

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab.analyses.attention.study import Attention
from icl_lab.figures import attention as pictures
from icl_lab.figures.base import short
from icl_lab.files import KINDS
from icl_lab.files import publish_folder as save
from icl_lab.tasks.base import plain

LONG = 8_000_000  # bytes of a table of weights beyond which it is compressed


def answers_table(found: Attention) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows: each question, the truth, and what every run answers, with the error it makes."""
    marks = found.frames[0].marks
    head = ["token", "truth", *(f"{shown.name}{part}" for shown in found.runs for part in ("", ": error"))]
    rows = [
        [
            marks[each[0].token].label,
            each[0].truth,
            *(text for one in each for text in (one.answer, plain(one.error))),
        ]
        for each in zip(*(shown.answers for shown in found.runs), strict=True)
    ]
    return head, rows


def markdown(found: Attention, command: str) -> str:
    """Returns the answers beside the truth, and where each head of the last query looks first."""
    head, rows = answers_table(found)
    text = [
        f"Task {found.spec.task}, preset {found.spec.preset}; prompt {found.asked.origin}.",
        "",
        *md.head(head),
        *map(md.row, rows),
        "",
        f"The last query, {found.frames[0].marks[-1].label}: where its largest weight lies.",
        "",
    ]
    places = []
    for shown, seen in zip(found.runs, found.frames[0].maps, strict=True):
        for at, layer in enumerate(found.window.layers):
            for to, number in enumerate(found.window.heads):
                row = seen.weights[at, to, -1]
                key = int(row.abs().argmax())
                places.append(
                    [shown.name, f"{layer}.{number}", found.frames[0].marks[key].label, short(row[key].item())]
                )
    text += [*md.head(["run", "layer.head", "key", "weight"]), *map(md.row, places)]
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def weights_csv(found: Attention) -> str:
    """Returns every visible cell of the prompt's maps, one a row; layers, heads and tokens counted from 0.

    What a run is beyond its rule and seed stands in the page and in its folder: here it would double a long file.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("attn", "seed", "layer", "head", "query", "key", "query_token", "key_token", "weight", "score")
    writer.writerow(names)
    labels = [mark.label for mark in found.frames[0].marks]
    for shown, seen in zip(found.runs, found.frames[0].maps, strict=True):
        who = (shown.run.name, shown.run.seed)
        for at, layer in enumerate(found.window.layers):
            for to, head in enumerate(found.window.heads):
                weights, scores = seen.weights[at, to].tolist(), seen.scores[at, to].tolist()
                for row, query in enumerate(range(seen.first, len(labels))):
                    for key in range(query + 1):
                        cell = (f"{weights[row][key]:.8g}", f"{scores[row][key]:.8g}")
                        writer.writerow((*who, layer, head, query, key, labels[query], labels[key], *cell))
    return text.getvalue()


def answers_csv(found: Attention) -> str:
    """Returns the answers beside the truth as CSV."""
    text = io.StringIO()
    head, rows = answers_table(found)
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def figure(found: Attention) -> Figure:
    """Draws all maps of the prompt for print, one colour scale for all."""
    seen = found.frames[0].maps
    return pictures.attention(
        {shown.name: each.weights.numpy() for shown, each in zip(found.runs, seen, strict=True)},
        [mark.label for mark in found.frames[0].marks],
        found.window.layers,
        found.window.heads,
        title=f"{found.spec.task}, {found.spec.preset}: attention of {', '.join(shown.name for shown in found.runs)}",
        notes=[
            f"{shown.name} answers {shown.answers[-1].answer}; the truth is {shown.answers[-1].truth}"
            for shown in found.runs
            if shown.answers
        ],
    )


def publish(found: Attention, html: str, folder: Path, command: str) -> tuple[str, list[str]]:
    """Writes page, tables and figure; returns the tables as text and the names of the files."""
    text, drawn, weights = markdown(found, command), figure(found), weights_csv(found).encode()
    files = {"attention.html": html, "answers.csv": answers_csv(found), "table.md": text}
    data = {name: content.encode() for name, content in files.items()}
    # Without a time inside, so that the same numbers are the same file.
    packed = gzip.compress(weights, 6, mtime=0) if len(weights) >= LONG else None
    data |= {"weights.csv": weights} if packed is None else {"weights.csv.gz": packed}
    return text, save(folder, data, {"attention": drawn}, (*KINDS, "pdf"))
