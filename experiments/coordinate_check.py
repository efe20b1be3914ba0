"""Coordinate check of ``train.scaling``: how far activations move in ten steps, over the width of the model.

python experiments/coordinate_check.py --to FOLDER     minutes on a core; the figure of docs/presets.md

Under a parametrization that carries rates over width (arXiv 2203.03466, Appendix D.1) the root mean square of each
activation's change is the same at every width.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import matplotlib.pyplot as plt
import pandas as pd
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.figures import base
from icl_lab.runs import environment
from icl_lab.runs.spec import resolve
from icl_lab.training.loop import Progress, train

WIDTHS = (32, 64, 128, 256, 512)
SHOWN = ("scores", "attention", "mlp", "after", "answers")  # of each layer; the last of the model
STEPS = 10


def changes(
    scaling: str, widths: Sequence[int] = WIDTHS, seeds: int = 2, attn: str = "softmax", head: int = 0
) -> pd.DataFrame:
    """Root mean square of the change of each activation in ten steps of nano's recipe, without warm-up.

    Columns: scaling, width, seed, activation, change. Scores and weights are those of visible keys. ``head`` is the
    size of a head, whose number then grows with the width; 0 keeps the number of nano.
    """
    rows = []
    for width in widths:
        recipe = [f"train.scaling={scaling}", f"train.steps={STEPS}", "train.warmup=0", "train.schedule=constant"]
        recipe += [f"model.heads={width // head}"] if head else []
        spec = resolve("linear", attn, "nano", [f"model.width={width}", "train.curriculum.start=20", *recipe])
        task = tasks.build(spec.task)
        prompt = task.sample(stream(0, "coordinate-check"), 32, 20)
        for seed in range(seeds):
            model = spec.untrained(task, seed)
            before = model.trace(prompt)
            train(model, task, spec.train, seed, Progress(), keep=lambda progress: None)
            after, visible = model.trace(prompt), model.visible(prompt.tokens.shape[1])
            for name in [name for name in before.names if name.rpartition(".")[2] in SHOWN]:
                moved = after[name] - before[name]
                moved = moved[..., visible] if name.endswith("scores") else moved
                rows.append((scaling, width, seed, name, float(moved.square().mean().sqrt())))
    return pd.DataFrame(rows, columns=["scaling", "width", "seed", "activation", "change"])


def draw(found: pd.DataFrame, path: Path) -> None:
    """Draw a panel for each scaling: change over width, a line for each activation (means over seeds)."""
    kinds = list(dict.fromkeys(found["scaling"]))
    figure, panels = plt.subplots(1, len(kinds), figsize=(3.6 * len(kinds), 3.6), sharey=True, layout="constrained")
    for axes, kind in zip(panels, kinds, strict=True):
        means = found[found["scaling"] == kind].groupby(["activation", "width"], sort=False)["change"].mean().unstack()
        for name, row in means.iterrows():
            axes.plot(row.index, row.to_numpy(), marker="o", markersize=3, linewidth=1, label=str(name))
        axes.set(xscale="log", yscale="log", title=f"train.scaling={kind}", xlabel="width")
        axes.set_xticks(list(means.columns), [str(width) for width in means.columns])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"change in {STEPS} steps (root mean square)")
    panels[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    path.write_bytes(base.encode(figure, "png", "results/coordinate-check/changes.csv"))


@click.command()
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write into.")
@click.option("--seeds", default=4, show_default=True, help="Starts over which changes are averaged.")
@click.option("--attn", default="softmax", show_default=True, help="Normalizer, such as softmax+talking-heads.")
@click.option("--head", default=0, help="Size of a head, whose number then grows with the width (0: 4 heads).")
def main(to: Path, seeds: int, attn: str, head: int) -> None:
    """Run the check for both scalings; write changes.csv, env.json and coordinate-check.png."""
    to.mkdir(parents=True, exist_ok=True)
    found = pd.concat([changes(scaling, seeds=seeds, attn=attn, head=head) for scaling in ("fixed", "mup")])
    found.to_csv(to / "changes.csv", index=False, float_format="%.5g")
    about = environment.environment(
        torch.device("cpu"), f"python experiments/coordinate_check.py --seeds {seeds} --attn {attn} --head {head}"
    )
    (to / "env.json").write_text(json.dumps(about, indent=1) + "\n")
    draw(found, to / "coordinate-check.png")
    means = found.pivot_table(index=["scaling", "activation"], columns="width", values="change", sort=False)
    click.echo(means.assign(largest_over_smallest=means.max(axis=1) / means.min(axis=1)).round(3).to_string())


if __name__ == "__main__":
    main()
