"""What was found in pictures: maps of the headline, and its line along the shift."""

from matplotlib.figure import Figure

from icl_lab.figures import lines, maps
from icl_lab.grid import Grid
from icl_lab.prompted.along import Facts, axis_of, decimals, fixed_words, line_of, names_of, nearest, printed_at
from icl_lab.prompted.measurement import ROUNDED
from icl_lab.prompted.question import Plan


def figures(plan: Plan, grid: Grid, facts: Facts) -> dict[str, Figure]:
    """Draws the headline over the task's two main axes, a map for each number of decimals; and along the shift."""
    down, across = plan.task.heat_map
    fixed = {axis: value for axis, value in nearest(grid, facts.training).items() if axis not in (down, across)}
    drawn = {}
    for digits in plan.digits:
        of = {"digits": float(digits)} if len(plan.digits) > 1 else {}
        tag = f"-digits-{digits}" if of else ""
        words = ", ".join(f"{axis} {value:g}" for axis, value in (fixed | of).items())
        drawn[f"heat-map{tag}"] = maps.heat_map(
            grid.where(attn=facts.name, metric=plan.task.headline, **fixed, **of),
            down,
            across,
            title=f"{facts.asked['task']}, {facts.name}, {plan.form.name}{words and ', '}{words}",
            label=plan.task.metric_label(plan.task.headline),
            log=plan.task.log_scale,
            training=facts.training,
            names=plan.task.axis_words,
        )
    axis = axis_of(plan, grid)
    columns = grid.values(axis)
    if len(columns) > 1:
        rules, references = dict[str, list[list[float]]](), dict[str, list[float]]()
        for digits in plan.digits:
            shown = line_of(plan, grid, axis, facts.training, digits)
            for name in names_of(grid, plan.task.headline):
                values = [shown(name, plan.task.headline, value)[0] for value in columns]
                if name == facts.name:
                    called = f"{name}, {decimals(digits)}" if len(plan.digits) > 1 else name
                    rules[called] = [[value] for value in values]
                elif ROUNDED not in name:
                    references[name.removeprefix("reference:")] = values
        for other in facts.beside:
            if all(other.values(value) for value in columns):
                rules[other.attn] = [other.values(value) for value in columns]
        told = plan.speech.printed
        if told and told.axis == axis:
            numbers = [printed_at(told, value) for value in columns]
            if None not in numbers:
                called = f"{', '.join(told.where.values())} (printed)"
                references[called] = [number for number in numbers if number is not None]
        drawn["line"] = lines.rivals(
            columns,
            rules,
            references,
            axis=plan.task.axis_words.get(axis, axis),
            title=f"{facts.asked['task']}{fixed_words(plan, grid, axis, facts.training)}",
            label=plan.task.metric_label(plan.task.headline),
            log=plan.task.log_scale,
        )
    return drawn
