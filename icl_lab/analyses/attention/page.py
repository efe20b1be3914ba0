"""Attention maps as one self-contained page: numbers as base64, names as escaped text, for a browser or a notebook."""

import base64

import numpy as np
from markupsafe import Markup
from torch import Tensor

from icl_lab.analyses.attention import live, patterns
from icl_lab.analyses.attention.maps import THIS, Frame, Maps, Seen, ShownModel
from icl_lab.analyses.attention.report import answers_table, finding
from icl_lab.base.version import VERSION
from icl_lab.comparison.page import render
from icl_lab.figures.attention import ramps
from icl_lab.figures.base import short
from icl_lab.tasks.base import plain

STATIC = 2_000  # cells of the table that is there without a script


def page(seen: Seen, origin: str) -> str:
    """Return the page of some maps, ``origin`` says what made it: no file beside it, no request to anywhere."""
    head, rows = answers_table(seen)
    static_head, static_rows = _static(seen)
    return render(
        "attention.html",
        title=f"Attention: {seen.subject}, {', '.join(shown.name for shown in seen.runs)}",
        intro=_intro(seen),
        finding=finding(seen),
        notes=seen.notes,
        answers={"head": head, "rows": rows},
        static={"head": static_head, "rows": static_rows},
        runs=[_card(shown) for shown in seen.runs],
        prompt=seen.asked.origin,
        version=VERSION,
        command=seen.command,
        origin=origin,
        legend=patterns.LEGEND,
        data=data(seen),
        script=Markup(live.engine() + live.controls()) if seen.live else "",
    )


def data(seen: Seen) -> dict[str, object]:
    """Return what the script of the page reads.

    Weights and scores of the prompt itself are the model's single-precision numbers, so that what is shown is what was
    used; means over prompts have 65,536 levels and spreads 256. Only visible cells are there, row after row.
    """
    return {
        "task": seen.subject,
        "layers": seen.window.layers,
        "heads": seen.window.heads,
        "runs": [shown.name for shown in seen.runs],
        "frames": [_frame(frame) for frame in seen.frames],
        "axes": dict(seen.axes),
        "means": seen.means,
        "reach": dict(seen.reach),
        "ramps": {name: base64.b64encode(colors).decode() for name, colors in ramps().items()},
        "live": seen.live,
        "patterns": _patterns(seen),
        **({"full": True} if seen.frames[0].maps[0].full else {}),
    }


def _patterns(seen: Seen) -> dict[str, object]:
    """Patterns of all heads on the prompt, and what a page that computes needs to find them again."""
    marks, maps = seen.frames[0].marks, seen.frames[0].maps
    roles, compared = patterns.period(marks), patterns.compared(marks)
    graph = patterns.graph(roles) if seen.live else None
    return {
        "words": list(patterns.PATTERNS.values()),
        "bounds": [patterns.MOSTLY, patterns.PARTLY],
        "queries": [patterns.QUERIES, patterns.LEAST],
        "shares": [patterns.measured(map_, compared, roles) for map_ in maps],
        "values": compared.values,
        "within": compared.within if compared.within <= 0 else None,  # of numbers any distance
        "graph": graph and {"nodes": graph.nodes, "shapes": graph.shapes, "numbers": graph.numbers},
    }


def _frame(frame: Frame) -> dict[str, object]:
    tokens = [
        {"role": mark.role, "index": mark.index, "text": mark.text, "value": mark.value, "quiet": mark.quiet}
        | {"label": mark.label}
        for mark in frame.marks
    ]
    return {
        "axis": frame.axis,
        "value": frame.value,
        "first": frame.maps[0].first,
        "tokens": tokens,
        "runs": [_packed(maps, whole=frame.axis == THIS) for maps in frame.maps],
    }


def _packed(maps: Maps, whole: bool) -> dict[str, object]:
    visible = maps.visible.numpy()

    def seen(part: Tensor) -> np.ndarray:
        return np.ascontiguousarray(part.numpy()[:, :, visible], dtype="<f4")

    if whole:
        return {"weights": _numbers(seen(maps.weights)), "scores": _numbers(seen(maps.scores))}
    return {
        "weights": _levels(seen(maps.weights), "<u2"),
        "scores": _levels(seen(maps.scores), "<u2"),
        "spread": _levels(seen(maps.spread), "<u1"),
    }


def _numbers(values: np.ndarray) -> dict[str, object]:
    return {"type": "f4", "bytes": base64.b64encode(values.tobytes()).decode()}


def _levels(values: np.ndarray, kind: str) -> dict[str, object]:
    """Round values to the levels of an unsigned integer between the least (or 0) and the greatest."""
    numbers = np.nan_to_num(values.astype(float))
    low, high = min(0.0, float(numbers.min())), max(0.0, float(numbers.max()))
    steps = np.iinfo(kind).max
    # 0 stays exactly 0 where nothing is negative: the page tells it from what is small.
    step = (high - low) / steps or 1.0
    levels = ((numbers - low) / step).round()
    if low == 0:
        levels = np.where(numbers > 0, np.maximum(levels, 1), 0)
    return {
        "type": kind[1:],
        "low": low,
        "step": step,
        "bytes": base64.b64encode(levels.astype(kind).tobytes()).decode(),
    }


def _intro(seen: Seen) -> str:
    marks = seen.frames[0].marks
    words = " ".join(mark.text or mark.label for mark in marks[:60]) + " …" * (len(marks) > 60)
    return f"The prompt reads {words}. Rows are queries, columns the keys that they attend to."


def _static(seen: Seen) -> tuple[list[str], list[list[str]]]:
    """The weights of the last query in every head: shown before the script of the page runs."""
    marks, run_maps = seen.frames[0].marks, seen.frames[0].maps
    head = ["run", "layer.head", *(mark.label for mark in marks)]
    rows = [
        [shown.name, f"{layer}.{number}", *(short(weight) for weight in maps.weights[at, to, -1].tolist())]
        for shown, maps in zip(seen.runs, run_maps, strict=True)
        for at, layer in enumerate(seen.window.layers)
        for to, number in enumerate(seen.window.heads)
    ]
    return head, rows[: max(1, STATIC // len(head))]


def _card(shown: ShownModel) -> dict[str, object]:
    return {
        "name": shown.name,
        "lines": shown.card,
        "learned": [
            {"name": name, "layer": layer, "values": [plain(value) for value in values]}
            for (name, layer), values in sorted(shown.learned.items())
        ],
    }
