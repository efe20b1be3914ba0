"""Commands that ask a language model, and export those trained here."""

from pathlib import Path
from typing import Any

import click

import icl_lab as icl
from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.cli import study as studies
from icl_lab.cli.options import device_option, gathered, over_option, read_option, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder, Numbers, attn_option
from icl_lab.execute.where import Where
from icl_lab.extras.language import report, study
from icl_lab.runs import card
from icl_lab.tasks.capabilities import ReadsText

LONG = 1_000_000  # tokens


# Folder and device of a study of language models.
@click.command()
@click.argument("model")
@attn_option(required=True, help="Normalizers; the first is the baseline.")
@click.option("--text", default="", help="A file of text.  [default: the help texts that come with Python]")
@click.option("--length", type=click.IntRange(2, LONG), help="Tokens of a window.  [default: up to 1,024]")
@click.option("--windows", default=16, show_default=True, type=click.IntRange(2, 100_000), help="How many.")
@click.option(
    "--train-tokens",
    type=click.IntRange(1, LONG),
    help="What normalizers take for the training length.  [the model's own]",
)
@click.option("--needle", is_flag=True, help="Also hide numbers in texts and ask for them.")
@click.option("--contexts", default="256,512", show_default=True, type=Numbers(int, 1, LONG), help="Tokens.")
@click.option("--depths", default="10,30,50,70,90", show_default=True, type=Numbers(float, 0, 100), help="In percent.")
@click.option("--samples", default=10, show_default=True, type=click.IntRange(2, 100_000), help="Needles in a cell.")
@results_option
@device_option
@threads_option
@click.option("--name", default="", help="Folder below --results.")
@over_option
@gathered
def lm(model: str, attns: tuple[str, ...], text: str, where: Where, **more: Any) -> None:
    """Swap normalizers in a language model on disk: loss at each token, hidden numbers.

    MODEL is a folder that save_pretrained has written, or a .gguf file. Nothing is fetched. The text is cut as the
    task of that kind cuts it: losses and needles are of the held-out parts.
    """
    needles = study.Needles(more["contexts"], more["depths"], more["samples"]) if more["needle"] else None
    asked = study.LanguageQuestion(
        model, attns, text, more["length"] or 0, more["windows"], more["train_tokens"] or 0, needles
    )
    asked, language, corpus = study.checked(asked, where.torch_device())
    record, folder = studies.begin("lm", asked.options(corpus), f"lm-{asked.short}", where)
    with where.reporter.stoppable() as stopping:
        answers = study.measure(asked, language, corpus, where.reporter.tick, stopping)
    grids = report.grids(asked, answers, corpus)
    told = report.table(asked, answers, corpus)
    lines = [f"{asked.short} with other normalizers in its attention.", "", *told, ""]
    files = {f"{key}.csv": grid.csv() for key, grid in grids.items()}
    studies.write(record, folder, lines, files, report.figures(asked, answers, corpus))


@click.command()
@click.argument("run")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**9), help="Of the training.")
@click.option("--to", "target", type=Folder(), required=True, help="A new folder.")
@read_option
@gathered
def export_hf(run: str, seed: int, target: Path, where: Where) -> None:
    """Write a model of the task text as a folder of Hugging Face transformers, with its normalizer.

    RUN is a name of list runs, such as text/ssa/nano. The folder has weights, tokenizer and card; lm, lm_eval and
    whoever trusts its code read it.
    """
    try:
        from icl_lab.extras.language.convert import save
    except ImportError:
        raise BadValue("models are exported by transformers: pip install 'icl_lab[hf]'.") from None
    found = icl.find(run, seed, where=where)
    task = tasks.require(tasks.build(found.task), ReadsText)
    if task.bidirectional:
        raise BadValue(f"{task.name} fills in masked tokens; what is exported says the next one: models of text.")
    save(found.model.cpu(), task.corpus, target, card.text(found.stored, "transformers"))
    out(f"wrote {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    out(f"next: icl-lab lm {target} --attn {found.attn}")
