"""What was found in words: one line of the grid as a table, what stands beside it, and what has to be said of it."""

from collections.abc import Sequence

from icl_lab import markdown as md
from icl_lab import published
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.prompted.along import Facts, Shown, axis_of, decimals, fixed_words, line_of, names_of, printed_at
from icl_lab.prompted.measurement import ROUNDED, UNANSWERED, UNPARSABLE, Found
from icl_lab.prompted.question import Plan
from icl_lab.registry import filename

MILLION = 1e6


def table(plan: Plan, found: Found, grid: Grid, facts: Facts) -> str:
    """Returns the report as Markdown: what was asked, the headline along the shift, what stands beside it, notes."""
    axis, headline = axis_of(plan, grid), plan.task.headline
    columns = grid.values(axis)
    lines = [f"# {facts.name} on {facts.asked['task']}", "", *_asked(plan, found, facts), ""]
    for digits in plan.digits:
        shown = line_of(plan, grid, axis, facts.training, digits)
        tag = f", {decimals(digits)}" if len(plan.digits) > 1 else ""
        lines += [
            f"{plan.task.metric_label(headline)} ({headline}){fixed_words(plan, grid, axis, facts.training)}{tag}:",
            "",
        ]
        lines += md.head(["", *(f"{axis}={value:g}" for value in columns)])
        for name in names_of(grid, headline):
            cells = [_cell(shown(name, headline, value), name == facts.name) for value in columns]
            lines.append(md.row([f"`{name}`", *cells]))
            if name == facts.name:
                for kind in (UNPARSABLE, UNANSWERED):
                    lines += _share(plan, grid, shown, kind, columns, name)
        for other in facts.beside:
            lines.append(md.row([f"`{other.attn}`, {other.seeds_words}", *(other.cell(value) for value in columns)]))
            if other.effects:
                versus = [other.versus_words(value) for value in columns]
                lines.append(md.row([f"{facts.name} against `{other.attn}`", *versus]))
        lines += [*_printed(plan, axis, columns), ""]
    return "\n".join([*lines, *_notes(plan, found, facts), ""])


def folder_name(task: str, model: str) -> str:
    """Returns how a folder of these questions begins."""
    return filename(f"prompted-{task}-{model.strip('/').rpartition('/')[2] or 'model'}").replace(" ", "-")[:120]


def money(tokens_in: float, tokens_out: float, price: tuple[float, float]) -> float:
    """Returns what so many tokens cost, at a price for a million read and a million written."""
    return (tokens_in * price[0] + tokens_out * price[1]) / MILLION


def _cell(found: tuple[float, float], ours: bool) -> str:
    value, error = found
    return f"{short(value)} ± {short(error)}" if ours and error == error else short(value)


def _share(plan: Plan, grid: Grid, shown: Shown, kind: str, columns: Sequence[float], name: str) -> list[str]:
    """The row of answers that could not be read, or never came."""
    metric = next((each for each in grid.values("metric") if each.endswith(kind) and _ours(plan, each)), "")
    if not metric:
        return []
    cells = []
    for value in columns:
        try:
            cells.append(f"{shown(name, metric, value)[0]:.0%}")
        except KeyError:
            cells.append("0%")
    return [md.row([f"- of them {kind}", *cells])]


def _ours(plan: Plan, metric: str) -> bool:
    """Whether a count belongs to the test set of the headline."""
    prefix = max((prefix for prefix in plan.task.suites() if plan.task.headline.startswith(prefix)), key=len)
    return metric in (f"{prefix}{UNPARSABLE}", f"{prefix}{UNANSWERED}")


def _asked(plan: Plan, found: Found, facts: Facts) -> list[str]:
    """Sentences: who was asked how much, in which words."""
    asked = facts.asked
    what = (
        "all answers of a prompt at once, as a list"
        if plan.lists
        else (
            "every answer of a prompt, one at a time"
            if plan.every_answer
            else "the last answer of a prompt"
            if plan.speech.last
            else "one answer of a prompt, drawn evenly from those that the metric averages"
        )
    )
    decimals = " or ".join(map(str, plan.digits))
    samples = f"{plan.samples} sample{'s' * (plan.samples > 1)} at temperature {asked['temperature']:g}"
    return [
        f"{found.asked:,} answers: {_cells(plan)}, {plan.prompts} prompts in each (the first of those that "
        f"trained models meet), {samples}. Format {plan.form.name}, numbers with {decimals} decimals"
        f"{'' if plan.instruct else ', no instruction'}; asked is {what}."
    ]


def _cells(plan: Plan) -> str:
    return f"{len(plan.cells)} cell{'s' * (len(plan.cells) != 1)}"


def _notes(plan: Plan, found: Found, facts: Facts) -> list[str]:
    """What has to be said about the numbers."""
    wrong = (
        "count as wrong"
        if plan.task.rates
        else "count as the answer 0, the trivial one: a number would have to be made up"
    )
    notes = [f"{found.unparsable:,} of {found.asked:,} answers could not be read; they {wrong}."]
    if found.unanswered:
        notes.append(f"{found.unanswered:,} answers never came; they {wrong}, and no message of theirs was read.")
    if found.cut:
        notes.append(f"{found.cut:,} answers were cut short by the limit of tokens (--answer-tokens).")
    models = [f"{md.code(name or 'no name')} ({count:,})" for name, count in found.models.items()]
    if models:
        notes.append(f"Answered as {md.listed(models)}.")
    who = "the server" if facts.asked["engine"] == "openai" else "the tokenizer"
    counted = "estimated by us in part" if found.estimated else f"as {who} counted"
    spent = f"Tokens: {found.read:,} read, {found.wrote:,} written ({counted})."
    if facts.price:
        spent += f" At the price given: {money(found.read, found.wrote, facts.price):.4g}."
    notes.append(spent)
    notes.append(
        "± is the standard error over the prompts of a cell. The prompts say nothing of other wordings: another format "
        "or instruction is another measurement."
    )
    if any(ROUNDED in row["attn"] for row in found.rows):
        notes.append(f"References marked{ROUNDED} read the numbers with the decimals that were sent.")
    if facts.beside:
        notes.append(
            "Trained rules: mean over seeds, from their own grids. Against them: the ratio or difference on the "
            "prompts that both met, with its 95 % interval (paired bootstrap over prompts, widened by the seeds)."
        )
    printed = plan.speech.printed
    if printed and printed.axis == _printed_axis(plan):
        source = published.load(printed.table)
        rows = source.where(**printed.where)
        notes.append(
            f"Printed: {source.source.paper}, {source.source.table} ({source.source.link}); {source.source.conditions}."
        )
        said = dict.fromkeys(note.text for row in rows for note in source.footnotes(row, printed.value))
        notes += [f"- {text}" for text in [*said, *(note.text for note in source.remarks if not note.columns)]]
    return [part for note in notes for part in (note, "")]


def _printed_axis(plan: Plan) -> str:
    return plan.speech.printed.axis if plan.speech.printed else ""


def _printed(plan: Plan, axis: str, columns: Sequence[float]) -> list[str]:
    """The published row of a prompted model, where its axis is that of the table."""
    told = plan.speech.printed
    if told is None or told.axis != axis:
        return []
    cells = [f"{short(number)} *" if (number := printed_at(told, value)) is not None else "" for value in columns]
    return [md.row([f"{', '.join(told.where.values())}, as printed *", *cells])]
