"""Grids of settings: each combination of values is trained and tested; one table and one figure over all of them.

error     mean over seeds of the headline metric in training conditions; after training alone, of the last loss
best      combination with the least error of a normalizer; none where combinations differ in their tests alone, of
          which one is easier. It is chosen on the test prompts of training conditions; ``icl-lab rates`` chooses on
          separate prompts
effect    normalizer against the baseline with the same settings, paired over seeds: in training conditions, and by
          the declared summary of the task (beyond)
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.base.tables import csv_text
from icl_lab.comparison.gather import gather
from icl_lab.comparison.page.words import number
from icl_lab.comparison.statistics import Effect
from icl_lab.execute.complete import complete
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.study import Made
from icl_lab.execute.where import Where
from icl_lab.figures.lines import TunedLine, tuned
from icl_lab.figures.maps import side_by_side
from icl_lab.runs import provenance, study_folder, summary
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import by_rule
from icl_lab.runs.study_folder import StudyRecord

KIND = "grid"
MOST = 10_000  # runs, unless ``Where.allow_large``
EFFECTS = ("in_training", "beyond")
Row = dict[str, Any]


def measure(plan: RunPlan, lab: Lab, where: Where, baseline: str = "") -> Made:
    """Complete the runs of a grid, and publish its table and figure; with a ``baseline`` others are compared with it.

    Raises ``Unfinished`` where runs are left, ``BadValue`` on a baseline that is not among the normalizers, on a
    comparison of one, and on more than 10,000 runs without ``where.allow_large``.
    """
    if (count := len(plan.cells) * len(plan.attns) * len(plan.seeds)) > MOST and not where.allow_large:
        raise BadValue(f"a grid of {count:,} runs is more than {MOST:,}: take fewer values, or add --allow-large.")
    # An option that a grid varies is a column of its table, and not part of the names.
    names = [run.name for run in replace(plan, grid={}, seeds=plan.seeds[:1]).runs(lab.store)]
    found_at = [(cell, by_rule(runs).values()) for cell, runs in plan.by_cell(lab.store)]
    if any(len(found) != len(names) for _, found in found_at):
        raise BadValue(f"in this grid two of {', '.join(names)} are one normalizer: name one of them.")
    cells = [(cell, dict(zip(names, found, strict=True))) for cell, found in found_at]
    if baseline and (baseline not in names or len(names) < 2):
        raise BadValue(f"a comparison with '{baseline}' needs it and another normalizer, got {', '.join(names)}.")
    groups = {", ".join([name, *_words(cell)]): runs for cell, found in cells for name, runs in found.items()}
    # "tested" says nothing any more, but is in the hash of stored grids.
    options = {"grid": plan.grid, "settings": plan.settings, "baseline": baseline, "tested": True}
    record = StudyRecord.of(KIND, options, groups, lab.command)
    folder = study_folder.place(record, own_studies(lab.store.root), where.name, force=where.force)
    if not complete([run for runs in groups.values() for run in runs], lab, where):
        raise Unfinished(folder)
    rows = [{**cell, **row} for cell, found in cells for row in _rows(found, baseline or names[0])]
    trained = {frozenset(run.training for runs in at.values() for run in runs) for _, at in cells}
    chosen = best(rows) if len(trained) == len(cells) else {}
    metric = tasks.build(plan.task).metric_label(tasks.build(plan.task).headline)
    text = _text(plan, rows, chosen, metric, baseline, lab.command)
    if other_code := provenance.words([run for runs in groups.values() for run in runs]):
        text += f"\n{other_code}\n"
    lab.show(text)
    flat = [_flat(row) for row in rows]
    files = {"grid.csv": csv_text(list(flat[0]), flat), "table.md": text}
    drawn = figure(plan, rows, chosen, metric)
    names = study_folder.publish(record, folder, files, {KIND: drawn} if drawn is not None else {})
    lab.tracked.study(folder, text)
    return Made(flat, text, folder, names)


def _words(cell: Mapping[str, str]) -> list[str]:
    return [f"{field}={value}" for field, value in cell.items()]


def _rows(groups: Mapping[str, Sequence[Run]], baseline: str) -> Iterator[Row]:
    """Yield a row per normalizer with the settings of a cell."""
    study = gather(groups, baseline)
    for name, runs in groups.items():
        found = (summary.errors_in_distribution([grid], study.task, runs[0].spec) for grid in study.grids[name])
        errors = [each[runs[0].name] for each in found]
        row: Row = {"attn": name, "seeds": len(runs), "errors": errors, "summary": fmean(study.summary(name))}
        if name != baseline:
            here = study.task.pinned(study.training)
            known = [cell for cell in study.cells() if here.items() <= cell.items()]
            near = study.versus(name, baseline, here) if known else None
            row |= dict(zip(EFFECTS, (near, study.overall(name, baseline)), strict=True))
        yield row


def _flat(row: Row) -> Row:
    """Return a row with numbers alone: mean and spread for errors, middle and interval for effects."""
    flat = {name: value for name, value in row.items() if name not in ("errors", *EFFECTS)}
    flat |= {"error": fmean(row["errors"]), "errors": " ".join(f"{error:.6g}" for error in row["errors"])}
    for name in EFFECTS:
        for part, value in zip(("", "_low", "_high"), _interval(row.get(name)), strict=True):
            flat[name + part] = value
    return flat


def _interval(effect: Effect | None) -> tuple[float, float, float]:
    return (math.nan,) * 3 if effect is None else effect.shown


def best(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row of each normalizer with the least mean error; none for one whose errors are all infinite."""
    found = dict[str, Row]()
    for row in rows:
        error = fmean(row["errors"])
        if math.isfinite(error) and (row["attn"] not in found or error < fmean(found[row["attn"]]["errors"])):
            found[row["attn"]] = row
    return found


def _text(
    plan: RunPlan, rows: Sequence[Row], chosen: Mapping[str, Row], metric: str, baseline: str, command: str
) -> str:
    marked = [id(row) for row in chosen.values()]
    head = [*plan.grid, "normalizer", "error", "summary"]
    compared = [f"effect {name.replace('_', ' ')}" for name in EFFECTS] if baseline else []
    lines = []
    for row in rows:
        star = " *" if id(row) in marked else ""
        cells = [*(row[field] for field in plan.grid), row["attn"], number(fmean(row["errors"])) + star]
        cells.append(number(row["summary"]))
        numbers = [_interval(row.get(name)) for name in EFFECTS] if baseline else []
        lines.append([*cells, *("" if math.isnan(each[0]) else md.interval(*each) for each in numbers)])
    about = f"{metric}, in training conditions{'; * least of a normalizer' if chosen else ''}"
    notes = [f"{about}. Seeds {plan.seeds[0]} to {plan.seeds[-1]}; {plan.task}, preset {plan.preset}."]
    task, lacks = tasks.build(plan.task), any(math.isnan(row["summary"]) for row in rows)
    notes.append(f"Summary: {task.summary.words(task.log_scale)}{'; empty without such a test' if lacks else ''}.")
    if baseline:
        notes.append(f"Effects against {baseline} with the same settings; below 1 (of differences 0) is less error.")
    title = f"# Grid of {md.listed(plan.grid)}"
    return "\n".join(
        [title, "", *notes, "", *md.table([*head, *compared], lines), "", f"Made by {md.code(command)}.", ""]
    )


def figure(plan: RunPlan, rows: Sequence[Row], chosen: Mapping[str, Row], metric: str) -> Figure | None:
    """Draw the errors: over one field as curves, over two as heat maps; over more there is none."""
    log = all(error > 0 for row in rows for error in row["errors"]) and tasks.build(plan.task).log_scale
    title = f"{plan.task}, preset {plan.preset}{' (ring: best)' if chosen else ''}"
    names = list(dict.fromkeys(row["attn"] for row in rows))
    places = {field: _places(values) for field, values in plan.grid.items()}
    words = {field: {x: value for value, x in each.items()} if _named(each) else {} for field, each in places.items()}
    if len(plan.grid) == 1:
        (field,) = plan.grid
        lines = dict[str, TunedLine]()
        for name in names:
            mine = {places[field][row[field]]: row["errors"] for row in rows if row["attn"] == name}
            at = places[field][chosen[name][field]] if name in chosen else None
            lines[name] = TunedLine(mine, {x: fmean(errors) for x, errors in mine.items()}, at)
        return tuned({"": lines}, axis=field, label=metric, title=title, log=log, words=words[field])
    if len(plan.grid) > 2:
        return None
    down, across = plan.grid
    tables = {
        name: {
            (places[down][row[down]], places[across][row[across]]): fmean(row["errors"])
            for row in rows if row["attn"] == name
        } for name in names
    }  # fmt: skip
    marked = {name: (places[down][row[down]], places[across][row[across]]) for name, row in chosen.items()}
    shown = words[down], words[across]
    return side_by_side(tables, down, across, label=metric, log=log, outlined=marked, words=shown)


def _named(values: Iterable[str]) -> bool:
    try:
        return not all(math.isfinite(float(value)) for value in values)
    except ValueError:
        return True


def _places(values: Sequence[str]) -> dict[str, float]:
    """Places of values on an axis: the numbers themselves, or their order where one is no number."""
    return {value: float(place if _named(values) else value) for place, value in enumerate(values)}
