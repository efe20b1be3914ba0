"""Commands that ask language models, and export those trained here."""

from pathlib import Path
from typing import Any

import click

import icl_lab as icl
from icl_lab import tasks
from icl_lab.cli import study as studies
from icl_lab.cli.options import (
    device_option,
    gathered,
    over_option,
    read_option,
    results_option,
    threads_option,
    together,
)
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite, Folder, Numbers, several_rules
from icl_lab.errors import BadValue
from icl_lab.language import benchmark_report, benchmarks, report, study
from icl_lab.language.finetune import Recipe
from icl_lab.launch.where import Where
from icl_lab.runs import card
from icl_lab.tasks.capabilities import ReadsText

LONG = 1_000_000  # tokens


# Where a study of language models is written, and what it runs on.
study_options = together(
    results_option,
    device_option,
    threads_option,
    click.option("--name", default="", help="Folder below --results."),
    over_option,
)


@click.command()
@click.argument("model")
@click.option(
    "--attn",
    "attns",
    multiple=True,
    required=True,
    callback=several_rules,
    help="Normalizers; the first is the baseline.",
)
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
@click.option("--follow", is_flag=True, help="Also what every head attends to as the text grows, and hidden states.")
@click.option(
    "--prompt", default="", help="A text whose attention maps are shown, of the first two normalizers, as a page."
)
@click.option("--layers", default="", help="Layers of that page, from 0, e.g. 0,1.  [default: all]")
@click.option("--heads", default="", help="Heads of that page, from 0.  [default: all]")
@click.option(
    "--finetune", default=0, type=click.IntRange(0, 10**7), help="Steps of training with each normalizer first."
)
@click.option("--learn", type=click.Choice(["all", "rule"]), default="all", help="What fine-tuning moves.")
@click.option("--rate", default=1e-4, show_default=True, type=Finite(0, 1, least_open=True), help="Of Adam.")
@click.option("--batch", default=4, show_default=True, type=click.IntRange(1, 10_000), help="Windows of a step.")
@click.option("--tune-length", default=256, show_default=True, type=click.IntRange(2, LONG), help="Tokens of these.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**9), help="Of fine-tuning.")
@study_options
@gathered
def lm(model: str, attns: tuple[str, ...], text: str, where: Where, **more: Any) -> None:
    """Swap normalizers in a language model on disk: loss at each token, hidden numbers.

    MODEL is a folder that save_pretrained has written, or a .gguf file. Nothing is fetched. The text is cut as the
    task of that kind cuts it: losses and needles are of the held-out parts, fine-tuning reads the others.
    """
    needles = study.Needles(more["contexts"], more["depths"], more["samples"]) if more["needle"] else None
    recipe = None
    if steps := more["finetune"]:
        recipe = Recipe(steps, more["learn"], more["rate"], more["batch"], more["tune_length"], more["seed"])
    asked = study.LanguageQuestion(
        model,
        attns,
        text,
        more["length"] or 0,
        more["windows"],
        more["train_tokens"] or 0,
        needles,
        recipe,
        *(more[name] for name in ("prompt", "layers", "heads", "follow")),
    )
    asked, language, corpus = study.checked(asked, where.torch_device())
    record, folder = studies.begin("lm", asked.options(corpus), f"lm-{asked.short}", where)
    with where.reporter.stoppable() as stopping:
        kept, tick = where.root / "finetuned", where.reporter.tick
        answers = study.measure(asked, language, corpus, kept, tick, stopping)
    grids = report.grids(asked, answers, corpus)
    told = report.table(asked, answers, grids, corpus)
    lines = [f"{asked.short} with other normalizers in its attention.", "", *told, ""]
    files = {f"{key}.csv": grid.csv() for key, grid in grids.items()}
    files |= report.files(asked, language, answers, record.command)
    studies.write(record, folder, lines, files, report.figures(asked, answers, grids, corpus))


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--attn",
    "attns",
    multiple=True,
    callback=several_rules,
    help="Normalizers; the first is the baseline.  [default: what each model was saved with]",
)
@click.option("--tasks", "names", required=True, help="Benchmarks of lm_eval: arc_easy,lambada_openai.")
@click.option(
    "--shots", type=click.IntRange(0, 1000), help="Examples before each item.  [default: the benchmark's own]"
)
@click.option("--limit", default=0, type=click.IntRange(0, 10**9), help="Only the first N items.  [default: all]")
@click.option("--include", type=Folder(there=True), help="Folder of benchmarks of one's own, as YAML files.")
@click.option("--batch", default=8, show_default=True, type=click.IntRange(1, 10_000), help="Items in one pass.")
@click.option("--length", default=0, type=click.IntRange(0, LONG), help="Most tokens of an item.  [the model's own]")
@click.option(
    "--train-tokens",
    default=0,
    type=click.IntRange(0, LONG),
    help="What normalizers take for the training length.  [the model's own]",
)
@study_options
@gathered
def lm_eval(
    models: tuple[str, ...], attns: tuple[str, ...], names: str, include: Path | None, where: Where, **more: Any
) -> None:
    """Ask language models the benchmarks of lm-evaluation-harness, with other normalizers.

    MODELS are folders that save_pretrained has written, or .gguf files. A benchmark that is finished is kept; the same
    command goes on after the last one. What a benchmark reads is fetched by lm_eval unless HF_HUB_OFFLINE=1 is set.
    """
    asked = benchmarks.BenchmarkQuestion(
        tuple(dict.fromkeys(models)),
        attns,
        tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip())),
        shots=more["shots"],
        limit=more["limit"],
        length=more["length"],
        near=more["train_tokens"],
        include=str(include or ""),
    )
    if not asked.tasks:
        raise BadValue(f"--tasks names benchmarks, such as arc_easy,lambada_openai; got '{names}'.")
    device, kept = where.torch_device(), where.root / benchmarks.KEPT
    record, folder = studies.begin("lm-eval", asked.options(), benchmark_report.name(asked.models), where)
    found = benchmarks.measure(asked, kept, device, more["batch"], where.reporter.tick)
    files = {"scores.csv": benchmark_report.grid(found).csv()}
    studies.write(record, folder, benchmark_report.table(found), files, {})


@click.command()
@click.argument("run")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**9), help="Of the training.")
@click.option("--to", "target", type=Folder(), required=True, help="A new folder.")
@read_option
@gathered
def export_hf(run: str, seed: int, target: Path, where: Where) -> None:
    """Write a model of the task text as a folder of Hugging Face transformers, with its normalizer.

    RUN is a name of list runs, such as text/ssa/nano. The folder has weights, tokenizer and card; lm, lm-eval and
    whoever trusts its code read it.
    """
    try:
        from icl_lab.language.convert import save
    except ImportError:
        raise BadValue("models are exported by transformers: pip install 'icl_lab[hf]'.") from None
    found = icl.find(run, seed, where=where)
    task = tasks.require(tasks.build(found.task), ReadsText)
    if task.bidirectional:
        raise BadValue(f"{task.name} fills in masked tokens; what is exported says the next one: models of text.")
    save(found.model.cpu(), task.corpus, target, card.text(found.stored, "transformers"))
    out(f"wrote {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    out(f"next: icl-lab lm {target} --attn {found.attn}")
