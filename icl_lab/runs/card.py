"""Model card of a trained model: description, measurements, limits of use."""

from icl_lab import normalizers, tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import RunFailed
from icl_lab.base.registry import Choice, Entry, Registry
from icl_lab.base.version import VERSION
from icl_lab.runs import provenance, summary
from icl_lab.runs.command import differences
from icl_lab.runs.run import Run
from icl_lab.runs.summary import bound_words


def text(run: Run, library: str = "icl_lab") -> str:
    """Return the card as Markdown, of weights that ``library`` reads; ``RunFailed`` where none are kept."""
    if not run.trained:
        raise RunFailed(f"{run.folder} keeps no weights, of which there could be a card.")
    spec, env, task = run.spec, run.env(), tasks.build(run.spec.task)
    model, train = spec.model, spec.train
    rule, about = _entry(normalizers.registry, spec.attn.partition("+")[0]), _entry(tasks.registry, spec.task)
    rows = [
        ("task", f"{md.code(spec.task)}: {about.line}"),
        ("normalizer", f"{md.code(spec.attn)}: {rule.line} {md.code(rule.formula) if rule.formula else ''}"),
        ("model", f"GPT-2 blocks: {model.layers} layers, {model.heads} heads, width {model.width}, {model.positions}"),
        ("training", f"{train.steps:,} steps of {train.batch} prompts of up to {train.longest}, seed {run.seed}"),
        ("bound on answers", bound_words(run)),
        ("settings", f"preset {spec.preset}" + "".join(f", {md.code(setting)}" for setting in differences(spec))),
        ("made with", f"icl_lab {env.get('versions', {}).get('icl_lab', '')}, commit {env.get('commit', 'unknown')}, "
                      f"torch {env.get('versions', {}).get('torch', '')}, {env.get('device', '')}"
                      + (f"; code {code}" if (code := provenance.of(run)) else "")),
        ("weights (sha256)", md.code(str(env.get("model_sha256", "")))),
    ]  # fmt: skip
    lines = ["---", "license: mit", f"library_name: {library}", "tags: [in-context-learning, attention]", "---", ""]
    lines += [f"# {md.escaped(spec.name)}, seed {run.seed}", "", *md.head(["", ""]), *(md.row(row) for row in rows), ""]
    if run.finished:
        grid = run.grid()
        errors = summary.errors_in_distribution([grid], task, spec)
        lines += [f"## {task.metric_label(task.headline)}, {summary.home(grid, task, spec)}", ""]
        lines += [*md.head(["predictor", "error"]), *(md.row([md.code(who), f"{v:.3g}"]) for who, v in errors.items())]
        if reason := summary.unlearned([grid], task, spec):
            lines += ["", f"**{reason.capitalize()}.**"]
        lines += ["", "Under shift: `grid.csv` beside the weights holds every measured cell.", ""]
    lines += [
        "## Use",
        "",
        "```python",
        "import icl_lab as icl",
        "",
        f'run = icl.find("{spec.name}", seed={run.seed})',
        "answers = run.model(run.prompts(4).tokens)",
        "```",
        "",
        "It is a model of a study: it answers this task only, and one training seed says little of a normalizer.",
        f"Sources: {rule.paper}; {about.paper}. Written by icl_lab {VERSION}.",
    ]
    return "\n".join([*lines, ""])


def _entry(registry: Registry, choice: str) -> Entry:
    name = Choice.parse(choice).name
    return next(entry for entry in registry.entries() if entry.name == name)
