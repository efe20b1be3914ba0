"""The pictures of a finished run: its heat map, its learning curve, what its normalizers learned."""

from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.base.files import remove_stale, write
from icl_lab.base.grid import Grid, model_name
from icl_lab.figures import maps, paper, training
from icl_lab.figures.base import encode
from icl_lab.figures.files import KINDS
from icl_lab.runs import summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec


def draw(run: Run, afresh: bool, tested: bool = True) -> None:
    """Draw the heat map and the learning curve of a finished run; where the numbers are not new, only missing pictures.

    Unless ``tested`` the run is only trained, and has no heat map. A picture kept in the grid's folder stays as it is,
    though another version would draw it with other bytes.
    """
    if run.copied:  # nothing is drawn into the archive
        return
    remove_unfinished(run)
    drawn = draw_heat_map(run, afresh) if tested else afresh
    if not run.swap and (drawn or not (run.folder / "learning-curve.png").exists()):
        draw_history(run)


def draw_heat_map(run: Run, afresh: bool) -> bool:
    """Draw the heat map of a finished run in the kinds that are wanted; return whether one was missing or afresh."""
    if paper.wanted():
        figure = heat_map(run.grid(), run.spec)
        write(run.place / f"heat-map{paper.SUFFIX}", encode(paper.styled(figure, "paper"), "pdf"))
    places = [run.place / f"heat-map.{kind}" for kind in KINDS]
    wanted = [place for place in places if afresh or not place.exists()]
    if wanted:
        figure = heat_map(run.grid(), run.spec)
        for place in wanted:
            write(place, encode(figure, place.suffix[1:]))
    return bool(wanted)


def remove_unfinished(run: Run) -> None:
    """Remove what a process that was killed while it drew a run has left."""
    for name in ("heat-map", "learning-curve", "learned"):
        remove_stale(run.place, f".{name}.")


def draw_history(run: Run) -> None:
    """Draw what the normalizers of a trained run learned on the way and, last, its learning curve.

    Where that is there, all pictures are: a command that is killed before goes on with both.
    """
    for name, figure in reversed(history_figures(run).items()):
        write(run.folder / f"{name}.png", encode(figure, "png"))


def history_figures(run: Run) -> dict[str, Figure]:
    """Learning curve of a trained run, and the numbers that its normalizers learned on the way, if any."""
    title, history = f"{run.spec.task}, {run.spec.attn}, {run.spec.preset}, seed {run.seed}", run.history()
    curve = training.learning_curve(run.spec.attn, history, title=title, label="training loss")
    learned = training.learned(history, title=title)
    return {"learning-curve": curve} | ({"learned": learned} if learned is not None else {})


def heat_map(grid: Grid, spec: RunSpec) -> Figure:
    """Draw the headline metric of a run over the two main axes of its task."""
    task = tasks.build(spec.task)
    here, (rows, columns) = summary.training_cell(task, spec), task.heat_map
    return maps.heat_map(
        summary.shown_cells(grid, task, here),
        rows,
        columns,
        title=f"{spec.task}, {model_name(grid)}, {spec.preset}{summary.fixed_axes(grid, task, here)}",
        label=task.metric_label(task.headline),
        log=task.log_scale,
        training=here,
        names=task.axis_words,
        lost=summary.lost(grid, task, here),
    )
