"""One question to one model: what it is, who answers it, and the folder that it ends in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from icl_lab import tasks
from icl_lab.analyses import page
from icl_lab.errors import BadValue, RunFailed, Stopped
from icl_lab.figures.base import encode
from icl_lab.language.disk import OnDisk
from icl_lab.prompted import along, beside, measurement, pictures, report
from icl_lab.prompted.asking import Asking, Outcome
from icl_lab.prompted.budget import Budget, about_tokens
from icl_lab.prompted.engine import Engine
from icl_lab.prompted.formats import named
from icl_lab.prompted.question import Plan, Question
from icl_lab.prompted.record import Record, identity_hash
from icl_lab.registry import Choice, filename
from icl_lab.runs.measure import TestSpec
from icl_lab.runs.spec import RunSpec, resolve
from icl_lab.runs.store import Store
from icl_lab.runs.summary import training_cell

RECORDS = "prompted"  # the folder of records
SINGLE, LISTED = 16, 6  # tokens of an answer by itself, and of each answer of a list
CHAT, PLAIN = "chat", "plain"
Progress = Callable[[str, int, int, str], object]


@dataclass(frozen=True)
class Ask:
    """What a user asks for; ``server`` is the address, or what tells the weights of a model on disk."""

    task: str
    model: str
    engine: Literal["openai", "transformers"] = "openai"
    server: str = ""
    preset: str = "lite"
    settings: Sequence[str] = ()
    shots: Sequence[int] = ()
    prompts: int = 64
    form: str = ""
    digits: Sequence[int] = ()
    samples: int = 1
    temperature: float = 0.0
    answer_tokens: int = 0
    every_answer: bool = False
    all_sets: bool = False
    instruct: bool = True
    attn: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """What the model is called: its name, or its folder or file."""
        if self.engine == "openai":
            return self.model
        return OnDisk(Path(self.model)).name

    @property
    def name(self) -> str:
        """What stands in the column ``attn``."""
        return f"prompted:{self.short}" + (f"->{self.attn}" if self.attn else "")


class Study:
    """A question with everything that follows from it; checked when it is made, before anything is asked.

    Raises ``LabError`` where the task has no words, or a cell cannot be drawn.
    """

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.spec = _resolved(ask)
        task = tasks.build(self.spec.task)
        speech = task.speech
        if speech is None:
            raise BadValue(f"{task.name} has not been put into words; these have: {', '.join(spoken())}.")
        form = named(ask.form or (CHAT if ask.engine == "openai" else PLAIN))
        here = training_cell(task, self.spec)
        test = TestSpec(prompts=ask.prompts, axes=self.spec.test.axes)
        prefix = max((each for each in task.suites() if task.headline.startswith(each)), key=len)
        self.plan = Plan(
            task,
            speech,
            test,
            form,
            sorted(set(ask.shots or [int(here["length"])])),
            sorted(set(ask.digits or [form.digits])),
            task.suites() if ask.all_sets else {prefix: task.suites()[prefix]},
            ask.prompts,
            ask.samples,
            ask.every_answer,
            ask.instruct,
        )
        self.answer_tokens = ask.answer_tokens or (LISTED if self.plan.lists else SINGLE)
        self.training = here | {"length": float(self.plan.lengths[-1])} if ask.shots else here

    @property
    def identity(self) -> dict[str, Any]:
        """What decides an answer beside the question itself: a record is of one of these."""
        ask = self.ask
        return {
            "task": self.spec.task,
            "model": ask.short,
            "engine": ask.engine,
            "server": ask.server,
            "format": self.plan.form.name,
            "instruct": ask.instruct,
            "temperature": ask.temperature,
            "answer_tokens": self.answer_tokens,
            "attn": ask.attn,
            "body": dict(ask.body),
        }

    @property
    def hash(self) -> str:
        """Eight hexadecimal digits of that: the column ``spec`` of the grid."""
        return identity_hash(self.identity)

    @property
    def options(self) -> dict[str, Any]:
        """What the record of the study says was asked."""
        plan = self.plan
        return self.identity | {
            "preset": self.spec.preset,
            "axes": {name: list(values) for name, values in self.spec.test.axes.items() if name != "length"},
            "drawn_at": plan.test.lengths[-1],
            "shots": list(plan.lengths),
            "digits": list(plan.digits),
            "prompts": plan.prompts,
            "samples": plan.samples,
            "every_answer": plan.every_answer,
            "sets": list(plan.suites),
        }

    @property
    def usual_name(self) -> str:
        """How the folder of the study begins."""
        return report.folder_name(self.spec.task, self.ask.short)

    def record(self, results: Path) -> Path:
        """Returns the file of the answers below a results folder: one for all studies of this question."""
        model = filename(self.ask.short).replace(" ", "-")[:80]
        return results / RECORDS / f"{model}-{filename(self.spec.task)}-{self.hash}.jsonl"

    def questions(self) -> Iterator[Question]:
        """Yields every question, cell by cell."""
        for cell in self.plan.cells:
            yield from self.plan.questions(cell)

    def missing(self, record: Record) -> list[Question]:
        """Returns the questions that have no answer yet."""
        return [question for question in self.questions() if record.answer(question) is None]

    def estimate(self, questions: Sequence[Question]) -> tuple[int, int]:
        """Estimates the tokens that are read and at most written for questions, without a tokenizer."""
        sent = sum(about_tokens(question.sent.whole, len(question.sent.messages)) for question in questions)
        return sent, sum(question.wants * self.answer_tokens for question in questions)


@dataclass(frozen=True)
class Limits:
    """How much may be asked, over all calls that share a record, and how often again."""

    requests: int
    tokens: int
    retries: int = 4
    fail_fast: bool = False


def answer(
    study: Study,
    record: Record,
    engine: Callable[[], Engine],
    limits: Limits,
    say: Callable[[str], object],
    tick: Progress = lambda stage, done, total, note: None,
    stopping: Callable[[], bool] = lambda: False,
) -> tuple[Outcome, int]:
    """Asks what has no answer yet; returns how that ended, and how many questions still have none.

    ``engine`` is called only where something is missing: a study whose questions are all answered needs neither a
    server nor a key.
    """
    missing = study.missing(record)
    if not missing:
        return Outcome(), 0
    budget = Budget(limits.requests, limits.tokens, record.attempts, record.tokens)
    if len(missing) > (left := max(0, limits.requests - record.attempts)):
        say(f"{len(missing):,} questions have no answer yet; --max-requests leaves {left:,} requests.")
    asking = Asking(engine(), record, budget, limits.retries, limits.fail_fast, say)
    expected = study.ask.short if study.ask.engine == "openai" else ""
    outcome = asking(missing, lambda done, total: tick("asking", done, total, ""), stopping, expected)
    return outcome, len(study.missing(record))


def check(outcome: Outcome, left: int, total: int, count_missing: bool) -> None:
    """Raises ``Stopped`` or ``RunFailed`` where a study cannot be measured yet; what was answered is kept."""
    kept = f"{total - left:,} of {total:,} questions are answered, and kept"
    if outcome.interrupted:
        raise Stopped(f"stopped: {kept}; the same command goes on.")
    if outcome.budget:
        raise RunFailed(f"the budget is spent: {kept}; a greater --max-requests or --max-tokens goes on.")
    if outcome.stopped:
        raise RunFailed(f"{outcome.stopped}: {kept}; the same command goes on.")
    if left and not count_missing:
        raise RunFailed(
            f"{left:,} questions have no answer: {kept}; the same command asks for them again, and with "
            "--unanswered wrong they count as wrong."
        )


@dataclass(frozen=True)
class Written:
    """What a study comes to: its text, its files and its figures."""

    text: str
    files: dict[str, str | bytes]
    figures: dict[str, Any]


def written(
    study: Study, record: Record, store: Store, against: Sequence[str], price: tuple[float, float] | None, command: str
) -> Written:
    """Measures a study, and sets trained rules beside it; raises ``BadValue`` where one of them is not stored."""
    ask, plan = study.ask, study.plan
    found = measurement.measured(plan, record, ask.name)
    who = {"task": study.spec.task, "preset": study.spec.preset, "spec": study.hash, "seed": 0}
    grid = measurement.grid(plan, found, **who)
    axis = along.axis_of(plan, grid)
    here = along.nearest(grid, study.training)
    fixed = {name: value for name, value in here.items() if name not in (axis, *plan.task.facets)}
    columns = grid.values(axis)
    ours = {} if len(plan.digits) > 1 else {place: found.errors.at({**fixed, axis: place}) for place in columns}
    others = [
        beside.beside(beside.runs_of(store, study.spec.task, attn, study.spec.preset), plan, axis, columns, here, ours)
        for attn in against
    ]
    facts = along.Facts(ask.name, ask.short, study.identity, study.training, price, others)
    text = report.table(plan, found, grid, facts) + f"\nMade by `{command}`.\n"
    keys = {question.key for question in study.questions()}
    files: dict[str, str | bytes] = {
        "grid.csv": grid.csv(),
        "answers.csv": measurement.answers(found),
        "record.jsonl": record.lines(keys),
        **({"errors.safetensors": found.errors.encoded()} if found.errors.cells else {}),
        "table.md": text,
    }
    figures = pictures.figures(plan, grid, facts)
    files["report.html"] = page.document(
        f"{ask.name} on {study.spec.task}",
        "A language model that reads the test prompts of trained models as text.",
        "",
        list(page.asked(study.options)),
        text.partition("\n")[2].splitlines()[:-1],
        {name: encode(figure, "png") for name, figure in figures.items()},
        command,
    )
    return Written(text, files, figures)


def spoken() -> list[str]:
    """Returns the names of the tasks that have been put into words."""
    return [name for name in tasks.names() if tasks.registry.part(name) and _speaks(name)]


def _speaks(name: str) -> bool:
    try:
        return tasks.build(name).speech is not None
    except BadValue:  # a task that cannot be built without options
        return False


def _resolved(ask: Ask) -> RunSpec:
    """The grid that trained models of the preset are tested on, with axes changed where that was asked for."""
    for setting in ask.settings:
        if not setting.strip().startswith("test.axes."):
            raise BadValue(
                f"--set {setting}: of a prompted model only the cells can be set, such as test.axes.NAME=1,2."
            )
    Choice.parse(ask.task)
    return resolve(ask.task, "softmax", ask.preset, ask.settings)


@contextmanager
def local_engine(study: Study, device: Any) -> Iterator[Engine]:
    """Reads a model from disk, with another rule in its attention where that was asked for."""
    from icl_lab.language.model import read
    from icl_lab.prompted.inprocess import InProcess

    language = read(study.ask.model, device)
    made = InProcess(language, study.ask.model, temperature=study.ask.temperature, answer_tokens=study.answer_tokens)
    if not study.ask.attn:
        yield made
        return
    with language.ruled(study.ask.attn, language.trained):
        yield made
