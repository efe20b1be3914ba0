"""The command that prompts language models with the test prompts of trained ones."""

import json
import os
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli import study as studies
from icl_lab.cli.options import gathered, over_option, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite, Numbers
from icl_lab.errors import BadValue, RunFailed, Stopped
from icl_lab.launch.progress import say
from icl_lab.launch.where import Where
from icl_lab.prompted.asking import STOPPED, Round, answer
from icl_lab.prompted.question import FORMATS, PromptQuestion
from icl_lab.prompted.record import Record
from icl_lab.prompted.report import make_report, money
from icl_lab.prompted.study import ANSWER_TOKENS, PromptedOptions, PromptedStudy, address

if TYPE_CHECKING:
    from icl_lab.prompted.endpoint import Endpoint

MANY = 10**9
SHOTS, DIGITS = Numbers(int, 1, 10_000, empty=True), Numbers(int, 0, 12, empty=True)
MOST_TOKENS = 10**12
BUDGET = (1000, 10**7)  # requests and tokens, where nothing is said: about what somebody can pay by mistake
SHOWN = 2  # questions that a dry run shows as they would be sent
WHERE = "OPENAI_BASE_URL"
KEY = "OPENAI_API_KEY"


def _price(context: click.Context, option: click.Parameter, text: str) -> tuple[float, float] | None:
    """Reads ``0.5`` or ``0.5,1.5``: what a million tokens cost that are read, and that are written."""
    refused = click.BadParameter(f"'{text}' is no price such as 0.5 or 0.5,1.5 (a million tokens read, written).")
    try:
        values = Numbers(float, 0, MANY, empty=True)(text)
    except click.BadParameter:
        raise refused from None
    if len(values) > 2:
        raise refused
    return (values[0], values[-1]) if values else None


def _body(context: click.Context, option: click.Parameter, text: str) -> dict[str, Any]:
    """Reads fields of a request as JSON."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter(f"'{text[:80]}' is no JSON object such as '{{\"top_p\": 0.9}}'.")
    return found


@click.command()
@click.option("--task", required=True, help="See: icl-lab list tasks.")
@click.option("--model", required=True, help="Name at the server.")
@click.option("--base-url", default="", help=f"Address of the server.  [default: {WHERE}]")
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
@click.option("--parallel", default=4, show_default=True, type=click.IntRange(1, 256), help="Requests at once.")
@click.option(
    "--max-requests", default=BUDGET[0], show_default=True, type=click.IntRange(0, MANY), help="Of all calls."
)
@click.option(
    "--max-tokens", default=BUDGET[1], show_default=True, type=click.IntRange(0, MOST_TOKENS), help="Of all calls."
)
@click.option("--timeout", default=60.0, show_default=True, type=Finite(0, 86_400, least_open=True), help="Seconds.")
@click.option("--retries", default=4, show_default=True, type=click.IntRange(0, 100), help="Of a failed request.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first question without an answer.")
@click.option(
    "--unanswered",
    type=click.Choice(["ask", "wrong"]),
    default="ask",
    show_default=True,
    help="What becomes of questions that the server has no answer to: asked again next time, or counted as wrong.",
)
@click.option("--price", default="", callback=_price, help="Of a million tokens: read, or read,written.")
@click.option("--body", default="", callback=_body, help="More fields of a request, as JSON; null leaves one out.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and its cost; send and write nothing.")
@results_option
@threads_option
@click.option("--name", default="", help="Folder below --results.")
@over_option
@gathered
def prompted(where: Where, dry_run: bool, **given: Any) -> None:
    """Prompt a language model with the test prompts of trained ones, numbers as text.

    The address of an OpenAI-compatible server and its key come from OPENAI_BASE_URL and OPENAI_API_KEY; nothing else is
    contacted, and the key is neither stored nor shown. What is answered is never asked again: the same command goes on.
    """
    where.torch_device()  # and threads
    reporter = where.reporter
    study = _study(given, dry_run)
    path, questions = study.record(where.root), study.questions()
    if dry_run:
        out(_plan(study, questions, Record(path, study.identity), given))
        return
    record_of, folder = studies.begin("prompted", study.recorded_options, study.usual_name, where)
    with reporter.stoppable() as stopping, Record(path, study.identity).held() as record:
        asked = Round(
            record,
            given["max_requests"] - record.attempts,
            given["max_tokens"] - record.tokens,
            given["retries"],
            given["fail_fast"],
            say,
            reporter.tick,
            stopping,
        )
        answer(questions, lambda: _endpoint(study.options, given["timeout"], given["parallel"]), asked)
        if asked.retried:
            say(f"{asked.retried:,} requests were made again after a passing failure.")
        for reason, count in asked.failures.most_common():
            say(f"{count:,} x {reason}")
        left = sum(record.answer(question) is None for question in questions)
        _check(asked.stopped, left, len(questions), given["unanswered"] == "wrong")
        lines, files = make_report(study, record, given["price"], reporter.command)
    studies.write(record_of, folder, lines, files, {}, "report.html")


def _endpoint(options: PromptedOptions, timeout: float, parallel: int) -> "Endpoint":
    """The model of the server; raises ``BadValue`` where there is no client to ask it."""
    try:
        from icl_lab.prompted.endpoint import Endpoint
    except ImportError:
        raise BadValue("servers are asked by the openai client: pip install 'icl_lab[llm]'.") from None
    return Endpoint(options, os.environ.get(KEY, ""), timeout, parallel)


def _study(given: dict[str, Any], dry_run: bool) -> PromptedStudy:
    """Checks what is asked before anything is loaded or sent."""
    url = given["base_url"] or os.environ.get(WHERE, "")
    if not url and not dry_run:
        raise BadValue(f"no server is named: set {WHERE}, such as http://127.0.0.1:8000/v1, or give --base-url.")
    names = ("task", "model", "preset", "settings", "shots", "prompts", "form", "digits", "temperature")
    return PromptedStudy(
        PromptedOptions(
            **{name: given[name] for name in (*names, "answer_tokens", "every_answer", "body")},
            server=address(url) if url else "",
            instruct=not given["no_instruction"],
        )
    )


def _check(stopped: str, left: int, total: int, count_missing: bool) -> None:
    """Raises ``Stopped`` or ``RunFailed`` where ``left`` of ``total`` questions stop the measurement."""
    kept = f"{total - left:,} of {total:,} questions are answered, and kept"
    if stopped == STOPPED:
        raise Stopped(f"stopped: {kept}; the same command goes on.")
    if stopped:
        raise RunFailed(f"{stopped}: {kept}; the same command goes on (a budget: with a greater one).")
    if left and not count_missing:
        raise RunFailed(
            f"{left:,} questions have no answer: {kept}; the same command asks for them again, and with "
            "--unanswered wrong they count as wrong."
        )


def _plan(study: PromptedStudy, questions: list[PromptQuestion], record: Record, given: dict[str, Any]) -> str:
    """Text of a dry run: the first prompts, the number of questions, tokens and price."""
    missing = [question for question in questions if record.answer(question) is None]
    lines = []
    for number, question in enumerate(questions[:SHOWN], 1):
        lines += [f"question {number} of {len(questions):,} ({question.key}):", "", question.text, ""]
    # An estimate, without a tokenizer.
    sent, most = sum(question.about_tokens for question in missing), len(missing) * study.options.answer_tokens
    lines.append(f"{len(study.cells)} cells, {study.options.prompts} prompts in each: {len(questions):,} questions.")
    if len(missing) < len(questions):
        lines.append(f"{len(questions) - len(missing):,} of them are answered in {record.path}.")
    lines.append(
        f"{len(missing):,} requests, about {sent:,} tokens read and at most {most:,} written (an estimate: tokenizers "
        "differ by half or more on numbers)."
    )
    if price := given["price"]:
        cost = money(sent, most, price)
        lines.append(f"At {price[0]:g} a million read and {price[1]:g} written: about {cost:.2f}.")
    if len(missing) + record.attempts > given["max_requests"]:
        lines.append(f"--max-requests {given['max_requests']:,} is less than that: it would stop there.")
    lines.append("Nothing was sent (dry run).")
    return "\n".join(lines)
