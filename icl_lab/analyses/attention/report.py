"""Attention maps for reading: the answers with the truth, every weight as CSV, and a figure for print."""

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab.analyses.attention.maps import Seen
from icl_lab.base import markdown as md
from icl_lab.figures import attention as pictures
from icl_lab.figures.base import short
from icl_lab.tasks.base import plain

LONG = 8_000_000  # letters of a table of weights beyond which it is compressed


def answers_table(found: Seen) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: each question, the truth, and what every run answers, with the error it makes."""
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


def table(found: Seen) -> list[str]:
    """Return the answers with the truth, and where each head of the last query has its largest weight."""
    head, rows = answers_table(found)
    text = [
        f"Prompt {found.asked.brief}: {found.asked.origin}.",
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
    return [*text, *md.head(["run", "layer.head", "key", "weight"]), *map(md.row, places)]


def finding(found: Seen) -> str:
    """Return what each model answers last, the truth, and the key that its last query weighs most.

    That is the key with the greatest mean of |weight| over the heads that are shown.
    """
    marks, parts = found.frames[0].marks, []
    if last := [shown.answers[-1] for shown in found.runs if shown.answers]:
        said = " and ".join(f"{shown.name} answers {shown.answers[-1].answer}" for shown in found.runs)
        parts.append(f"At {marks[last[0].token].label} {said}; the truth is {last[0].truth}")
    weighed = []
    for shown, seen in zip(found.runs, found.frames[0].maps, strict=True):
        row = seen.weights[:, :, -1].double().abs().mean((0, 1))
        key = int(row.argmax())
        weighed.append(f"{marks[key].label} in {shown.name} ({short(row[key].item())})")
    parts.append(
        f"The last query has its greatest weight, the mean over the heads shown, on {' and on '.join(weighed)}"
    )
    return ". ".join(parts) + "."


def weights_csv(found: Seen) -> str:
    """Return every visible cell of the prompt's maps, one per row; layers, heads and tokens counted from 0.

    What a run is beyond its normalizer and seed is in the page and in its folder: here it would double a long file.
    """
    rows: list[Sequence[object]] = [
        ("attn", "seed", "layer", "head", "query", "key", "query_token", "key_token", "weight", "score")
    ]
    labels = [mark.label for mark in found.frames[0].marks]
    for shown, seen in zip(found.runs, found.frames[0].maps, strict=True):
        who, visible = (shown.attn, shown.seed), seen.visible.sum(1).tolist()
        for at, layer in enumerate(found.window.layers):
            for to, head in enumerate(found.window.heads):
                weights, scores = seen.weights[at, to].tolist(), seen.scores[at, to].tolist()
                for row, query in enumerate(range(seen.first, len(labels))):
                    for key in range(visible[row]):
                        cell = (f"{weights[row][key]:.8g}", f"{scores[row][key]:.8g}")
                        rows.append((*who, layer, head, query, key, labels[query], labels[key], *cell))
    return _csv(rows)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def files(found: Seen) -> dict[str, str | bytes]:
    """Return the answers and the weights as CSV; the weights compressed where they are long."""
    head, rows = answers_table(found)
    weights, data = weights_csv(found), dict[str, str | bytes]({"answers.csv": _csv([head, *rows])})
    if len(weights) < LONG:
        return data | {"weights.csv": weights}
    # Without a time inside, so that the same numbers are the same file.
    return data | {"weights.csv.gz": gzip.compress(weights.encode(), 6, mtime=0)}


def figure(found: Seen, title: str) -> Figure:
    """Draw all maps of the prompt for print, one colour scale for all."""
    return pictures.attention(
        _weights(found),
        [mark.label for mark in found.frames[0].marks],
        found.window.layers,
        found.window.heads,
        title=f"{title} of {', '.join(shown.name for shown in found.runs)}",
        notes=_notes(found),
        full=found.frames[0].maps[0].full,
    )


def over_image(found: Seen, title: str) -> Figure:
    """Draw what the last query of each head weighs, over the image that the prompt is; patch are all other keys."""
    image, grid = cast(tuple[Tensor, tuple[int, int]], found.image)
    return pictures.over_image(
        image.numpy(),
        {name: each[:, :, -1, :-1].reshape(*each.shape[:2], *grid) for name, each in _weights(found).items()},
        found.window.layers,
        found.window.heads,
        title=f"{title} of {', '.join(shown.name for shown in found.runs)}, from {found.frames[0].marks[-1].label}",
        notes=_notes(found),
    )


def _weights(found: Seen) -> dict[str, np.ndarray]:
    seen = found.frames[0].maps
    return {shown.name: each.weights.numpy() for shown, each in zip(found.runs, seen, strict=True)}


def _notes(found: Seen) -> list[str]:
    return [
        f"{shown.name} answers {shown.answers[-1].answer}; the truth is {shown.answers[-1].truth}"
        for shown in found.runs
        if shown.answers
    ]
