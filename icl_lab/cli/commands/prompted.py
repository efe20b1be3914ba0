"""The command that prompts language models with the test prompts of trained ones, by files of requests and answers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from icl_lab.base.errors import RunFailed
from icl_lab.base.files import publish, sha256, writing
from icl_lab.cli import study as studies
from icl_lab.cli.options import gathered, over_option, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite, NewFile, Numbers
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where
from icl_lab.extras.prompted import batch
from icl_lab.extras.prompted.question import FORMATS
from icl_lab.extras.prompted.report import make_report
from icl_lab.extras.prompted.study import ANSWER_TOKENS, PromptedOptions, PromptedStudy

SHOTS, DIGITS = Numbers(int, 1, 10_000, empty=True), Numbers(int, 0, 12, empty=True)
OURS = ("model", "messages", "prompt")  # fields of a request that other options make


def _body(context: click.Context, option: click.Parameter, text: str) -> dict[str, Any]:
    """Read fields of a request as JSON."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter(f"'{text[:80]}' is no JSON object such as '{{\"top_p\": 0.9}}'.")
    if ours := [name for name in OURS if name in found]:
        raise click.BadParameter(f"{ours[0]} is made of the other options.")
    return found


@click.command()
@click.option("--task", required=True, help="See: icl-lab list tasks.")
@click.option("--model", required=True, help="Name, as whoever answers calls it.")
@click.option("--write", type=NewFile(), help="Write the requests to this file; with --read, those without an answer.")
@click.option(
    "--read",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of answers to measure; may be given again.",
)
@click.option("--preset", default="lite", show_default=True, help="Whose grid of cells is asked about.")
@click.option("--set", "settings", multiple=True, metavar="A.B=V", help="Cells, e.g. test.axes.length=10,40.")
@click.option("--shots", default="", type=SHOTS, help="Examples of a prompt.  [default: as in training]")
@click.option("--prompts", default=64, show_default=True, type=click.IntRange(2, 10_000), help="In each cell.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="chat",
    show_default=True,
    help="How a prompt is written: chat to an assistant, plain to complete.",
)
@click.option("--digits", default="", type=DIGITS, help="Decimals of numbers; several: an axis.  [default: 2]")
@click.option("--temperature", default=0.0, show_default=True, type=Finite(0, 100), help="0: the likeliest answer.")
@click.option(
    "--answer-tokens",
    type=click.IntRange(1, 10**6),
    default=ANSWER_TOKENS,
    show_default=True,
    help="At most, of an answer.",
)
@click.option("--every-answer", is_flag=True, help="Ask for all answers of a prompt, not for one.")
@click.option("--no-instruction", is_flag=True, help="Only the examples: the task is not said.")
@click.option("--body", default="", callback=_body, help="More fields of a request, as JSON; null leaves one out.")
@click.option("--served-as", default="", help="Another name by which the model may have answered.")
@click.option("--unanswered-wrong", is_flag=True, help="Count questions without an answer as wrong.")
@results_option
@threads_option
@click.option("--name", default="", help="Folder below --results.")
@over_option
@gathered
def prompted(
    where: Where, write: Path | None, read: tuple[Path, ...], served_as: str, unanswered_wrong: bool, **given: Any
) -> None:
    """Prompt a language model with the test prompts of trained ones, numbers as text.

    --write makes a file of requests in the batch format of OpenAI's API. Whoever runs the model answers it, such as
    `vllm run-batch`; the same command with --read in the place of --write measures the answers.
    """
    if write is None and not read:
        raise click.UsageError("give --write FILE for the requests, or --read FILE with the answers.")
    where.torch_device()  # and threads
    instruct = not given.pop("no_instruction")
    study = PromptedStudy(PromptedOptions(**given, instruct=instruct))
    questions = study.questions()
    found = batch.read(read, questions, [study.options.model, *filter(None, [served_as])])
    for reason, count in Counter(found.failed.values()).most_common():
        say(f"{count:,} x {reason}")
    if found.damaged:
        say(f"{len(found.damaged):,} x a damaged line, which is passed over, such as {found.damaged[0]}")
    missing = [question for question in questions if question.key not in found.replies]
    if write is not None:
        with writing(write):
            publish(write, batch.requests(missing))
        tokens, most = sum(question.about_tokens for question in missing), len(missing) * study.options.answer_tokens
        out(
            f"wrote {write}: {len(missing):,} of {len(questions):,} requests, about {tokens:,} tokens read and at most "
            f"{most:,} written (an estimate: tokenizers differ by half or more on numbers)."
        )
        return
    if missing and not unanswered_wrong:
        raise RunFailed(
            f"{len(missing):,} of {len(questions):,} questions have no answer: --write FILE beside --read writes "
            "their requests, --unanswered-wrong counts them as wrong."
        )
    options = study.recorded_options | {
        "requests": sha256(batch.requests(questions)),
        "answers": sha256(batch.kept(found.replies)),
    }
    record, folder = studies.begin("prompted", options, study.usual_name, where)
    lines, files = make_report(study, found.replies, options, where.reporter.command)
    studies.write(record, folder, lines, files, {}, "report.html")
