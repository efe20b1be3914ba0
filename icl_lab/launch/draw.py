"""The pictures of a finished run: its heat map, its learning curve, what its rules learned."""

from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.figures import paper, training
from icl_lab.figures.base import encode
from icl_lab.files import KINDS, write
from icl_lab.runs import summary
from icl_lab.runs.run import Run


def draw(run: Run, afresh: bool) -> None:
    """Draws the heat map and the learning curve of a finished run; where they are not of new numbers, what is missing.

    A picture that is kept beside the grid stays as it is, though another version would draw it with other bytes.
    """
    if run.kept is not None:  # nothing is drawn into the evidence
        return
    if paper.wanted():
        figure = summary.heat_map(run.grid(), tasks.build(run.spec.task), run.spec)
        write(run.place / f"heat-map{paper.SUFFIX}", encode(paper.styled(figure, "paper"), "pdf"))
    places = [run.place / f"heat-map.{kind}" for kind in KINDS]
    wanted = [place for place in places if afresh or not place.exists()]
    if wanted:
        figure = summary.heat_map(run.grid(), tasks.build(run.spec.task), run.spec)
        for place in wanted:
            write(place, encode(figure, place.suffix[1:]))
    if not run.swap and (wanted or not (run.folder / "learning-curve.png").exists()):
        draw_history(run)


def draw_history(run: Run) -> None:
    """Draws the learning curve of a trained run, and what its rules learned on the way."""
    for name, figure in history_figures(run).items():
        write(run.folder / f"{name}.png", encode(figure, "png"))


def history_figures(run: Run) -> dict[str, Figure]:
    """Returns the learning curve of a trained run, and what its rules learned on the way where they learn numbers."""
    title, history = f"{run.spec.task}, {run.spec.attn}, {run.spec.preset}, seed {run.seed}", run.history()
    curve = training.learning_curve({run.spec.attn: history}, title=title, label="training loss")
    learned = training.learned(history, title=title)
    return {"learning-curve": curve} | ({"learned": learned} if learned is not None else {})
