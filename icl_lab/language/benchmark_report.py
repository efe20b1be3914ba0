"""Results on benchmarks: a grid, and a table with intervals beside the numbers that SSA's Table 2 prints."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from icl_lab import markdown as md
from icl_lab import published
from icl_lab.comparison.statistics import wilson
from icl_lab.grid import Grid
from icl_lab.language.benchmarks import Evaluated, Score

PRINTED = "ssa_table2_4"
ROWS = {  # names of the harness -> those of the table
    "arc_challenge": "ARC-Challenge",
    "arc_easy": "ARC-Easy",
    "hellaswag": "HellaSwag",
    "lambada_openai": "LAMBADA",
    "boolq": "BoolQ",
    "cb": "CB",
    "copa": "COPA",
    "multirc": "MultiRC",
    "sglue_rte": "RTE",
    "wic": "WiC",
    "wsc": "WSC",
}
NORMAL = 1.96  # standard errors on either side of a 95 % interval


def grid(found: Sequence[Evaluated]) -> Grid:
    """Scores as a grid: a benchmark is a task, the model's folder the preset, the only axis the number of shots."""
    rows = [
        {
            "task": each.scores.task,
            "attn": each.attn,
            "preset": each.model,
            "spec": each.fingerprint[:8],
            "seed": 0,
            "shots": each.scores.shots,
            **{key: getattr(score, key) for key in ("metric", "value", "stderr", "count")},
        }
        for each in found
        for score in each.scores.scores
    ]
    return Grid.of(rows, ["shots"])


def labels(found: Sequence[Evaluated]) -> dict[tuple[str, str, str], str]:
    """Label of each model with its normalizer: what tells them apart."""
    keys = list(dict.fromkeys((each.model, each.fingerprint, each.attn) for each in found))
    alone = len({key[:2] for key in keys}) == 1
    return {key: key[2] if alone else f"{key[0]} ({key[2]})" for key in keys}


def table(found: Sequence[Evaluated]) -> list[str]:
    """Lines of Markdown: a row for each benchmark and metric, differences to the first model paired over items."""
    named = labels(found)
    rows: dict[tuple[str, int, str], dict[str, Score]] = {}
    for each in found:
        label = named[each.model, each.fingerprint, each.attn]
        for score in each.scores.scores:
            rows.setdefault((each.scores.task, each.scores.shots, score.metric), {})[label] = score
    first, *others = named.values()
    differences = ["difference"] if len(others) == 1 else [f"{other} − {first}" for other in others]
    printed = {key: _printed(*key[:2]) if key[2] == "acc" else "" for key in rows}
    column = ["printed, softmax → SSA"] if any(printed.values()) else []
    lines = [
        "Shares of right answers in percent with 95 % intervals (Wilson), other metrics with 1.96 standard errors; "
        "differences are paired over items, with 1.96 standard errors. Items are the sample: a second training of the "
        "same model may differ by more.",
        "",
    ]
    cells_of = []
    for (task, shots, metric), scores in rows.items():
        cells = [task, metric, str(shots), f"{next(iter(scores.values())).count:,}"]
        cells += [_value(scores[label]) for label in named.values()]
        cells += [_difference(scores[first], scores[other]) for other in others]
        cells_of.append([*cells, *([printed[task, shots, metric]] if column else [])])
    lines += md.table(["benchmark", "metric", "shots", "items", *named.values(), *differences, *column], cells_of)
    return [*lines, "", *_sources({(ROWS[task], shots) for (task, shots, _), text in printed.items() if text})]


def _value(score: Score) -> str:
    if score.each and set(score.each) <= {0.0, 1.0}:
        low, high = wilson(sum(score.each), score.count)
        return f"{100 * score.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    error = "" if math.isnan(score.stderr) else f" ± {NORMAL * score.stderr:.2g}"
    return f"{score.value:.4g}{error}"


def _difference(first: Score, other: Score) -> str:
    if not first.each or len(first.each) != len(other.each):
        return f"{other.value - first.value:+.3g}".replace("-", "−")
    apart = np.subtract(other.each, first.each)
    scale = 100 if set(first.each) <= {0.0, 1.0} else 1
    error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
    return f"{scale * apart.mean():+.3g} ± {scale * NORMAL * error:.2g}".replace("-", "−")


def _printed(task: str, shots: int) -> str:
    """Printed accuracies of one benchmark, in percent; empty where the table has no such row."""
    if task not in ROWS or shots not in (0, 3):
        return ""
    before, after = (
        published.load(PRINTED).at("score_table2", task=ROWS[task], shots=shots, method=method)
        for method in ("Softmax", "SSA")
    )
    return f"{before} → {after}"


def _sources(shown: set[tuple[str, int]]) -> Iterator[str]:
    """Source of the printed column, and the doubts about the rows that are shown."""
    if not shown:
        return
    printed = published.load(PRINTED)
    source = printed.source
    yield f"Printed: {source.paper}, {source.table} ({source.link}): {source.conditions}."
    notes = [
        note.text
        for row in printed.rows
        if (row["task"].text, int(row["shots"].number)) in shown
        for note in printed.footnotes(row)
    ]
    yield from (f"* {text}" for text in dict.fromkeys(notes))
    yield ""


def name(models: Sequence[str]) -> str:
    """Folder of a study of these models, without its hash."""
    return "-".join(["lm-eval", *dict.fromkeys(Path(model).resolve().name.removesuffix(".gguf") for model in models)])
