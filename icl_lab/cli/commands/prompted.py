"""The command that prompts language models with the test prompts of trained ones."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from icl_lab import normalizers
from icl_lab.cli.options import device_option, gathered, results_option, tell, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite, Numbers, several_rules
from icl_lab.errors import BadValue
from icl_lab.language.disk import OnDisk
from icl_lab.launch.progress import say
from icl_lab.launch.where import Where
from icl_lab.prompted.asking import Console, Engine, Limits, answer
from icl_lab.prompted.endpoint import Endpoint, Secret, address
from icl_lab.prompted.record import Record
from icl_lab.prompted.report import make_report, money
from icl_lab.prompted.study import PromptedOptions, PromptedStudy
from icl_lab.prompted.trained import runs_of
from icl_lab.runs import study_folder

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
@click.option("--model", required=True, help="Name at the server; or a folder or .gguf file on disk.")
@click.option(
    "--engine", type=click.Choice(["openai", "transformers"]), default="openai", show_default=True,
    help="A server, or a model on disk in this process.",
)  # fmt: skip
@click.option("--base-url", default="", help=f"Address of the server.  [default: {WHERE}]")
@click.option("--preset", default="lite", show_default=True, help="Whose grid of cells is asked about.")
@click.option("--set", "settings", multiple=True, metavar="A.B=V", help="Cells, e.g. test.axes.length=10,40.")
@click.option(
    "--shots",
    default="",
    type=SHOTS,
    help="Examples of a prompt.  [default: as in training]",
)
@click.option("--prompts", default=64, show_default=True, type=click.IntRange(2, 10_000), help="In each cell.")
@click.option(
    "--format", "form", type=click.Choice(["published", "chat", "plain"]),
    help="How a prompt is written.  [default: chat; of a model on disk plain]",
)  # fmt: skip
@click.option(
    "--digits",
    default="",
    type=DIGITS,
    help="Decimals of numbers; several: an axis.  [default: 2]",
)
@click.option("--samples", default=1, show_default=True, type=click.IntRange(1, 1000), help="Answers to each question.")
@click.option("--temperature", default=0.0, show_default=True, type=Finite(0, 100), help="0: the likeliest answer.")
@click.option(
    "--answer-tokens", type=click.IntRange(1, 10**6), help="At most, of an answer.  [default: 16; in lists 6]"
)
@click.option("--every-answer", is_flag=True, help="Ask for all answers of a prompt, not for one.")
@click.option("--all-sets", is_flag=True, help="All test sets of the task, not only that of its headline.")
@click.option("--no-instruction", is_flag=True, help="Only the examples: the task is not said.")
@click.option("--parallel", default=4, show_default=True, type=click.IntRange(1, 256), help="Requests at once.")
@click.option(
    "--max-requests",
    type=click.IntRange(0, MANY),
    help="Of all calls.  [default: 1,000; of a model on disk no bound]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(0, MOST_TOKENS),
    help="Of all calls.  [default: 10,000,000; of a model on disk no bound]",
)
@click.option("--timeout", default=60.0, show_default=True, type=Finite(0, 86_400, least_open=True), help="Seconds.")
@click.option("--retries", default=4, show_default=True, type=click.IntRange(0, 100), help="Of a failed request.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first question without an answer.")
@click.option(
    "--unanswered", type=click.Choice(["ask", "wrong"]), default="ask", show_default=True,
    help="What becomes of questions that the server has no answer to: asked again next time, or counted as wrong.",
)  # fmt: skip
@click.option("--price", default="", callback=_price, help="Of a million tokens: read, or read,written.")
@click.option("--body", default="", callback=_body, help="More fields of a request, as JSON; null leaves one out.")
@click.option("--attn", default="", help="Another rule in the model's attention (transformers only).")
@click.option("--against", multiple=True, callback=several_rules, help="Trained rules beside it, from stored runs.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and its cost; send and write nothing.")
@results_option
@device_option
@threads_option
@click.option("--name", default="", help="Folder below --results.")
@click.option("--force", is_flag=True, help="Write over another study in that folder.")
@gathered
def prompted(where: Where, engine: str, dry_run: bool, **given: Any) -> None:
    """Prompt a language model with the test prompts of trained ones, numbers as text.

    The address of an OpenAI-compatible server and its key come from OPENAI_BASE_URL and OPENAI_API_KEY; nothing else is
    contacted, and the key is neither stored nor shown. What is answered is never asked again: the same command goes on.
    """
    where.torch_device()  # and threads
    reporter = where.reporter
    study = _study(given | {"engine": engine}, dry_run)
    for name, most, usual in zip(("max_requests", "max_tokens"), (MANY, MOST_TOKENS), BUDGET, strict=True):
        if given[name] is None:
            given[name] = usual if study.options.engine == "openai" else most
    path = study.record(where.root)
    if dry_run:
        out(_plan(study, Record.read(path, study.identity), given))
        return
    store = where.store()
    # The trained runs that it is compared with are found before anything is asked.
    runs = {attn: runs_of(store, study.spec.task, attn, study.spec.preset) for attn in given["against"]}
    record_of = study_folder.StudyRecord.of("prompted", study.recorded_options, runs, reporter.command)
    name = where.name or f"{study.usual_name}-{record_of.hash}"
    folder = study_folder.place(record_of, where.root, name, force=where.force)
    limits = Limits(given["max_requests"], given["max_tokens"], given["retries"], given["fail_fast"])
    with reporter.stoppable() as stopping, Record.read(path, study.identity) as record:
        earlier = folder / "record.jsonl"
        if earlier.exists():
            study_folder.check_file(earlier)
        if taken := record.take(earlier):
            say(f"{taken:,} answers are taken from {earlier}.")
        questions = study.questions()
        expected = study.options.short if study.options.engine == "openai" else ""
        with ExitStack() as stack:
            console = Console(say, reporter.tick, stopping)
            outcome = answer(questions, lambda: _engine(study, given, stack, where), record, limits, console, expected)
        if outcome.retried:
            say(f"{outcome.retried:,} requests were made again after a passing failure.")
        for reason, count in outcome.failures.most_common():
            say(f"{count:,} x {reason}")
        left = sum(record.answer(question) is None for question in questions)
        outcome.check(left, len(questions), given["unanswered"] == "wrong")
        made = make_report(study, record, runs, given["price"], reporter.command)
    names = study_folder.publish(record_of, folder, made.files, made.figures)
    tell(made.text, folder, names, "report.html")


def _study(given: dict[str, Any], dry_run: bool) -> PromptedStudy:
    """Checks what is asked before anything is loaded or sent."""
    if given["engine"] == "openai":
        if given["attn"]:
            raise BadValue("--attn is for models on disk (--engine transformers): a server keeps its own attention.")
        url = given["base_url"] or os.environ.get(WHERE, "")
        if not url and not dry_run:
            raise BadValue(f"no server is named: set {WHERE}, such as http://127.0.0.1:8000/v1, or give --base-url.")
        server = address(url) if url else ""
    else:
        disk = OnDisk(Path(given["model"]))
        if not disk.there:
            raise BadValue(f"There is no model '{given['model']}' here; name a folder or a .gguf file.")
        server = disk.fingerprint
    names = ("task", "model", "engine", "preset", "settings", "shots", "prompts", "digits", "samples", "temperature")
    return PromptedStudy(
        PromptedOptions(
            **{name: given[name] for name in (*names, "every_answer", "all_sets", "body")},
            server=server,
            form=given["form"] or "",
            answer_tokens=given["answer_tokens"] or 0,
            instruct=not given["no_instruction"],
            attn=normalizers.canonical(given["attn"]) if given["attn"] else "",
        )
    )


def _engine(study: PromptedStudy, given: dict[str, Any], stack: ExitStack, where: Where) -> Engine:
    """Opens the server or the model on disk; closed with the stack."""
    if study.options.engine == "transformers":
        from icl_lab.prompted.inprocess import local_engine  # transformers takes seconds, and is optional

        return stack.enter_context(local_engine(study, where.torch_device()))
    return Endpoint(
        study.options.server,
        Secret(os.environ[KEY]) if os.environ.get(KEY) else None,
        study.options.model,
        temperature=study.options.temperature,
        answer_tokens=study.answer_tokens,
        body=study.options.body,
        timeout=given["timeout"],
        parallel=given["parallel"],
    )


def _plan(study: PromptedStudy, record: Any, given: dict[str, Any]) -> str:
    """Text of a dry run: the first prompts, the number of questions, tokens and price."""
    every = study.questions()
    missing = [question for question in every if record.answer(question) is None]
    lines = []
    for number, question in enumerate(every[:SHOWN], 1):
        lines += [f"question {number} of {len(every):,} ({question.key}):", "", question.sent.whole, ""]
    sent, most = study.estimate(missing)
    lines.append(f"{len(study.cells)} cells, {study.options.prompts} prompts in each: {len(every):,} questions.")
    if len(missing) < len(every):
        lines.append(f"{len(every) - len(missing):,} of them are answered in {record.path}.")
    lines.append(
        f"{len(missing):,} requests, about {sent:,} tokens read and at most {most:,} written (an estimate: tokenizers "
        "differ by half or more on numbers)."
    )
    if given["price"]:
        lines.append(f"At {given['price'][0]:g} a million read and {given['price'][1]:g} written: about "
                     f"{money(sent, most, given['price']):.2f}.")  # fmt: skip
    if len(missing) + record.attempts > given["max_requests"]:
        lines.append(f"--max-requests {given['max_requests']:,} is less than that: it would stop there.")
    lines.append("Nothing was sent (dry run).")
    return "\n".join(lines)
