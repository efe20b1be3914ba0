"""Report of a study: a table along one axis of the grid with trained models beside it, figures, notes, files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import markdown as md
from icl_lab import published
from icl_lab.analyses import page
from icl_lab.comparison.statistics import Effect, Scale, evaluation_interval, paired
from icl_lab.errors import BadValue
from icl_lab.figures import lines as curves
from icl_lab.figures import maps
from icl_lab.figures.base import encode, short
from icl_lab.grid import Grid
from icl_lab.prompted.measurement import ROUNDED, UNANSWERED, UNPARSABLE, Found, measured
from icl_lab.prompted.record import Record
from icl_lab.prompted.study import Study
from icl_lab.runs.measure import Errors
from icl_lab.runs.run import Run
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

FAR = 0.1  # of a value of an axis: a printed column farther off is not beside ours
MILLION = 1e6


@dataclass(frozen=True)
class Slice:
    """One axis of a study's grid, the others at the conditions of training, facets averaged."""

    study: Study
    grid: Grid

    @cached_property
    def axis(self) -> str:
        """The axis of the task's lines, or another one that has more than one value."""
        task = self.study.task
        order = [task.line_axis, *task.heat_map, *task.axes["full"]]
        return next((axis for axis in order if len(self.grid.values(axis)) > 1), order[0])

    @cached_property
    def places(self) -> list[float]:
        """The values of the axis."""
        return self.grid.values(self.axis)

    @cached_property
    def training(self) -> dict[str, float]:
        """The cell of training, the nearest one where it was not asked about."""
        told = self.study.training.items()
        return {axis: min(self.grid.values(axis), key=lambda there: abs(there - value)) for axis, value in told}

    @cached_property
    def fixed(self) -> dict[str, float]:
        """The values of all other axes."""
        return {n: v for n, v in self.training.items() if n not in (self.axis, *self.study.task.facets)}

    def names(self) -> list[str]:
        """The names that have the headline: the model, then the references."""
        return [str(name) for name in self.grid.where(metric=self.study.task.headline).values("attn")]

    def at(self, name: str, metric: str, place: float, digits: int) -> tuple[float, float]:
        """Returns a value and its standard error; raises ``KeyError`` where there is none."""
        several = {"digits": float(digits)} if len(self.study.digits) > 1 else {}
        frame = self.grid.where(attn=name, metric=metric, **self.fixed, **several, **{self.axis: place}).frame
        error = float((frame["stderr"] ** 2).sum(skipna=False)) ** 0.5 / len(frame)
        return float(frame["value"].mean(skipna=False)), error

    @property
    def words(self) -> str:
        """The conditions that are fixed."""
        averaged = [f"mean over {facet}" for facet in self.study.task.facets if facet != self.axis]
        said = [*(f"{name}={value:g}" for name, value in self.fixed.items()), *averaged]
        return f", {', '.join(said)}" if said else ""

    def printed(self) -> list[float | None]:
        """The published numbers at each place, None where nothing was printed; empty for another axis."""
        told = self.study.speech.printed
        if told is None or told.axis != self.axis:
            return []
        rows = published.load(told.table).where(**told.where)
        return [
            next((row[told.value].number for row in rows if abs(row[told.column].number - place) < FAR), None)
            for place in self.places
        ]


@dataclass(frozen=True)
class Trained:
    """Finished runs of one normalizer along the axis: the headline by seed, and effects where prompts are paired."""

    attn: str
    seeds: int
    values: Mapping[float, list[float]]
    effects: Mapping[float, Effect]

    def cell(self, place: float) -> str:
        """The mean over seeds with their standard deviation; empty where the cell was not tested."""
        values = self.values.get(place, [])
        if not values:
            return ""
        mean = short(float(np.mean(values)))
        return f"{mean} (sd {short(float(np.std(values, ddof=1)))})" if len(values) > 1 else mean

    def versus(self, place: float) -> str:
        """The prompted model against this normalizer: a ratio or a difference with its interval."""
        effect = self.effects.get(place)
        if effect is None:
            return ""
        ratio = effect.scale == "log-ratio"
        middle, low, high = effect.ratio if ratio else (effect.effect, effect.low, effect.high)
        return f"{'x ' if ratio else ''}{short(middle)} [{short(low)}, {short(high)}]"


def runs_of(store: Store, task: str, attn: str, preset: str) -> list[Run]:
    """Returns the finished runs of a normalizer at a preset; raises ``BadValue`` where there is none."""
    spec = resolve(task, attn, preset)
    found = [run for seed in store.seeds(spec) if (run := store.run(spec, seed)).finished and not run.diverged]
    if not found:
        raise BadValue(
            f"--against {attn}: no finished run of {task} at preset {preset} is stored here; train one: icl-lab sweep "
            f"--task {task} --attn {attn} --preset {preset}."
        )
    return found


def trained(runs: Sequence[Run], part: Slice, ours: Errors) -> Trained:
    """Reads the runs of one normalizer; ``ours`` are the contributions of each prompt of the prompted model."""
    study, values, effects = part.study, dict[float, list[float]](), dict[float, Effect]()
    task, grids = study.task, [run.measured() for run in runs]
    kept = [errors for _, errors in grids if errors is not None]
    # Beginnings of one longest prompt are other draws than those of another.
    drawn_alike = runs[0].spec.test.lengths[-1] == study.test.lengths[-1]
    met = drawn_alike or not any(suite.prefixes for suite in study.suites.values())
    paired_here = met and len(study.digits) == 1 and len(kept) == len(runs)
    for place in part.places:
        cell = {**part.fixed, part.axis: place}
        try:
            values[place] = [
                float(grid.where(attn=run.name, metric=task.headline, **cell).frame["value"].mean(skipna=False))
                for run, (grid, _) in zip(runs, grids, strict=True)
            ]
        except KeyError:  # a cell that the runs were not tested in stays empty
            continue
        if paired_here and (effect := _effect(kept, cell, ours.at(cell), task.log_scale)):
            effects[place] = effect
    return Trained(runs[0].spec.attn, len(runs), values, effects)


def _effect(kept: Sequence[Errors], cell: Mapping[str, float], ours: Tensor, log: bool) -> Effect | None:
    """The prompted model against a normalizer on the prompts that both met; None where there is no interval."""
    theirs = np.stack([errors.at(cell).double().numpy() for errors in kept])
    both = min(theirs.shape[1], len(ours))
    if both < 2:
        return None
    a, b = theirs[:, :both], np.tile(ours[:both].double().numpy(), (len(kept), 1))
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or (log and min(a.mean(1).min(), b.mean(1).min()) <= 0):
        return None
    scale: Scale = "log-ratio" if log else "difference"
    try:
        noise = evaluation_interval(a, b, seed=0, scale=scale)
    except BadValue:  # a resample without any error has no logarithm
        return None
    effect = paired(a.mean(1), b.mean(1), scale).widened(noise)
    return None if math.isnan(effect.effect) else effect


def money(tokens_in: float, tokens_out: float, price: tuple[float, float]) -> float:
    """Returns the price of so many tokens, at a price for a million read and a million written."""
    return (tokens_in * price[0] + tokens_out * price[1]) / MILLION


def decimals(digits: int) -> str:
    """So many decimals, in words."""
    return f"{digits} decimal{'s' * (digits != 1)}"


def table(part: Slice, found: Found, others: Sequence[Trained], price: tuple[float, float] | None) -> str:
    """Returns the report as Markdown: options, the headline along the axis, models beside it, notes."""
    study, task, name = part.study, part.study.task, part.study.ask.name
    lines = [f"# {name} on {study.spec.task}", "", _options(study, found), ""]
    for digits in study.digits:
        tag = f", {decimals(digits)}" if len(study.digits) > 1 else ""
        lines += [f"{task.metric_label(task.headline)} ({task.headline}){part.words}{tag}:", ""]
        lines += md.head(["", *(f"{part.axis}={place:g}" for place in part.places)])
        for each in part.names():
            values = [part.at(each, task.headline, place, digits) for place in part.places]
            told = (f"{short(v)} ± {short(e)}" if each == name and e == e else short(v) for v, e in values)
            lines.append(md.row([f"`{each}`", *told]))
            if each == name:
                lines += _shares(part, digits)
        for other in others:
            seeds = f"{other.seeds} seed{'s' * (other.seeds != 1)}"
            lines.append(md.row([f"`{other.attn}`, {seeds}", *map(other.cell, part.places)]))
            if other.effects:
                lines.append(md.row([f"{name} against `{other.attn}`", *map(other.versus, part.places)]))
        if study.speech.printed and (numbers := part.printed()):
            cells = ["" if number is None else f"{short(number)} *" for number in numbers]
            lines.append(md.row([f"{', '.join(study.speech.printed.where.values())}, as printed *", *cells]))
        lines.append("")
    notes = _notes(study, found, price)
    if others:
        notes.append(
            "Trained rules: mean over seeds, from their own grids. Against them: the ratio or difference on the "
            "prompts that both met, with its 95 % interval (paired bootstrap over prompts, widened by the seeds)."
        )
    return "\n".join([*lines, *(text for note in [*notes, *_printed_notes(study)] for text in (note, "")), ""])


def _shares(part: Slice, digits: int) -> list[str]:
    """Rows of the answers that could not be read, or never came."""
    rows = []
    for kind in (UNPARSABLE, UNANSWERED):
        metric, cells = f"{part.study.prefix}{kind}", []
        if metric not in part.grid.values("metric"):
            continue
        for place in part.places:
            try:
                cells.append(f"{part.at(part.study.ask.name, metric, place, digits)[0]:.0%}")
            except KeyError:  # a cell in which every answer came has no such row
                cells.append("0%")
        rows.append(md.row([f"- of them {kind}", *cells]))
    return rows


def _options(study: Study, found: Found) -> str:
    """The sentences above the table: number of answers, format, sampling."""
    ask, cells = study.ask, len(study.cells)
    if study.lists:
        asked = "all answers of a prompt at once, as a list"
    elif ask.every_answer:
        asked = "every answer of a prompt, one at a time"
    elif study.speech.last:
        asked = "the last answer of a prompt"
    else:
        asked = "one answer of a prompt, drawn evenly from those that the metric averages"
    return (
        f"{found.asked:,} answers: {cells} cell{'s' * (cells != 1)}, {ask.prompts} prompts in each (the first of those "
        f"that trained models meet), {ask.samples} sample{'s' * (ask.samples > 1)} at temperature {ask.temperature:g}. "
        f"Format {study.form.name}, numbers with {' or '.join(map(str, study.digits))} decimals"
        f"{'' if ask.instruct else ', no instruction'}; asked is {asked}."
    )


def _notes(study: Study, found: Found, price: tuple[float, float] | None) -> list[str]:
    zero = "count as the answer 0, the trivial one: a number would have to be made up"
    wrong = "count as wrong" if study.task.rates else zero
    notes = [f"{found.unparsable:,} of {found.asked:,} answers could not be read; they {wrong}."]
    if found.unanswered:
        notes.append(f"{found.unanswered:,} answers never came; they {wrong}, and no message of theirs was read.")
    if found.cut:
        notes.append(f"{found.cut:,} answers were cut short by the limit of tokens (--answer-tokens).")
    if found.models:
        models = [f"{md.code(name or 'no name')} ({count:,})" for name, count in found.models.items()]
        notes.append(f"Answered as {md.listed(models)}.")
    who = "the server" if study.ask.engine == "openai" else "the tokenizer"
    counted = "estimated by us in part" if found.estimated else f"as {who} counted"
    cost = f" At the price given: {money(found.read, found.wrote, price):.4g}." if price else ""
    notes.append(f"Tokens: {found.read:,} read, {found.wrote:,} written ({counted}).{cost}")
    notes.append(
        "± is the standard error over the prompts of a cell. The prompts say nothing of other wordings: another format "
        "or instruction is another measurement."
    )
    if any(ROUNDED in row["attn"] for row in found.rows):
        notes.append(f"References marked{ROUNDED} read the numbers with the decimals that were sent.")
    return notes


def _printed_notes(study: Study) -> list[str]:
    """Source and footnotes of the published row."""
    told = study.speech.printed
    if not told:
        return []
    table = published.load(told.table)
    source = table.source
    said = [note.text for row in table.where(**told.where) for note in table.footnotes(row, told.value)]
    remarks = [note.text for note in table.remarks if not note.columns]
    return [
        f"Printed: {source.paper}, {source.table} ({source.link}); {source.conditions}.",
        *(f"- {text}" for text in [*dict.fromkeys(said), *remarks]),
    ]


def figures(part: Slice, others: Sequence[Trained]) -> dict[str, Figure]:
    """Draws the headline over the task's two main axes, a map for each number of decimals, and along the axis."""
    study, task, name = part.study, part.study.task, part.study.ask.name
    down, across = task.heat_map
    fixed = {axis: value for axis, value in part.training.items() if axis not in (down, across)}
    drawn, several, label = dict[str, Figure](), len(study.digits) > 1, task.metric_label(task.headline)
    for digits in study.digits:
        of = {"digits": float(digits)} if several else {}
        words = "".join(f", {axis} {value:g}" for axis, value in (fixed | of).items())
        drawn[f"heat-map-digits-{digits}" if several else "heat-map"] = maps.heat_map(
            part.grid.where(attn=name, metric=task.headline, **fixed, **of),
            down,
            across,
            title=f"{study.spec.task}, {name}, {study.form.name}{words}",
            label=label,
            log=task.log_scale,
            training=study.training,
            names=task.axis_words,
        )
    if len(part.places) < 2:
        return drawn
    models, references = dict[str, list[list[float]]](), dict[str, list[float]]()
    for digits in study.digits:
        for each in part.names():
            values = [part.at(each, task.headline, place, digits)[0] for place in part.places]
            if each == name:
                models[f"{name}, {decimals(digits)}" if several else name] = [[value] for value in values]
            elif ROUNDED not in each:
                references[each.removeprefix("reference:")] = values
    for other in others:
        if all(other.values.get(place) for place in part.places):
            models[other.attn] = [other.values[place] for place in part.places]
    numbers = [number for number in part.printed() if number is not None]
    if study.speech.printed and len(numbers) == len(part.places):
        references[f"{', '.join(study.speech.printed.where.values())} (printed)"] = numbers
    drawn["line"] = curves.rivals(
        part.places,
        models,
        references,
        axis=task.axis_words.get(part.axis, part.axis),
        title=f"{study.spec.task}{part.words}",
        label=label,
        log=task.log_scale,
    )
    return drawn


@dataclass(frozen=True)
class Written:
    """Results of a study: its text, files and figures."""

    text: str
    files: dict[str, str | bytes]
    figures: dict[str, Any]


def written(
    study: Study, record: Record, runs: Mapping[str, Sequence[Run]], price: tuple[float, float] | None, command: str
) -> Written:
    """Measures a study, and sets trained models (``runs`` by normalizer) beside it."""
    found, name = measured(study, record), study.ask.name
    spec = study.spec
    grid = Grid.of(found.rows, study.axes, task=spec.task, preset=spec.preset, spec=study.hash, seed=0)
    part = Slice(study, grid)
    others = [trained(of, part, found.errors) for of in runs.values()]
    text = table(part, found, others, price) + f"\nMade by `{command}`.\n"
    drawn = figures(part, others)
    files: dict[str, str | bytes] = {
        "grid.csv": grid.csv(),
        "answers.csv": found.csv(),
        "record.jsonl": record.lines({question.key for question in study.questions()}),
        **({"errors.safetensors": found.errors.encoded()} if found.errors.cells else {}),
        "table.md": text,
        "report.html": page.document(
            f"{name} on {spec.task}",
            "A language model that reads the test prompts of trained models as text.",
            "",
            list(page.asked(study.options)),
            text.partition("\n")[2].splitlines()[:-1],
            {each: encode(figure, "png") for each, figure in drawn.items()},
            command,
        ),
    }
    return Written(text, files, drawn)
