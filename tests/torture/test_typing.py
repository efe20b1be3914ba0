"""Command lines and Python calls that nobody means, drawn from what there is: one clear line, never a traceback.

``ICL_LAB_TORTURE=full`` types 500 command lines and makes 300 calls, in some minutes.
"""

import inspect
import os
import random
from collections.abc import Callable

import click
import pytest

import icl_lab as icl
from icl_lab import api
from icl_lab.launch.where import Where
from tests.cli.test_every_option import COMMANDS, NUMBERS, PARTS, TEXTS
from tests.torture.ground import FROM_NOTHING, FROM_STORED, READING, Ground
from tests.torture.process import TRACEBACK, Answer, ask, command
from tests.torture.tally import FULL, Tally

LINES = 500 if FULL else 60
CALLS = 300 if FULL else 60
MOST = 60.0  # seconds that a line may take
BEGUN = 77  # exit code of a line that began to train: it was accepted
FOREVER = ("make",)  # a door for the Makefile; its own tests feed it
CONTROL = ["\x1b[31m", "\x07", "a\rb", "\x85", "\u202e", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(0)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    return Ground.build(tmp_path_factory.mktemp("ground"))


def started() -> None:
    """A line that begins to train or to measure ends: it was understood."""
    from icl_lab import bench
    from icl_lab.profiles import costs, functions
    from icl_lab.testing import verdicts
    from icl_lab.training import loop

    def begin(*words: object, **names: object) -> None:
        os._exit(BEGUN)

    loop.train = bench.measure = begin
    functions.everything = costs.measure = verdicts.verdicts = begin


def value(rng: random.Random, option: str, kind: click.ParamType) -> str:
    """A value for an option: right, of another kind, huge, or no text at all."""
    if isinstance(kind, click.Choice) and rng.random() < 0.5:
        return rng.choice(list(map(str, kind.choices)))
    if option in PARTS and rng.random() < 0.5:
        return rng.choice(PARTS[option]) + rng.choice([*NUMBERS, *TEXTS])
    right = ["linear", "ssa", "smoke", "1", "2", "5,12", "0.5", "results", "page.md", "model", "book.txt", "tiny"]
    return rng.choice([*right, *NUMBERS, *TEXTS, *CONTROL, ",".join(rng.sample(NUMBERS, 2)), "[1]", "{}", "true"])


def line(rng: random.Random) -> list[str]:
    """A command line: of a command that there is, with options of its own and of others, or a right one bent."""
    if rng.random() < 0.4:
        words = list(rng.choice([*FROM_NOTHING.values(), *FROM_STORED.values(), *READING.values()]))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(words))
            words[at : at + rng.randint(0, 1)] = [rng.choice([*NUMBERS, *TEXTS, *CONTROL, "--force", "--set"])]
        return words
    path = rng.choice([each for each in sorted(COMMANDS) if each[-1] not in FOREVER])
    words = list(path)
    own = COMMANDS[path].params
    others = COMMANDS[rng.choice(sorted(COMMANDS))].params
    for parameter in rng.sample([*own, *own, *others], min(len([*own, *own, *others]), rng.randint(0, 6))):
        if isinstance(parameter, click.Argument):
            words.append(value(rng, "", parameter.type))
        else:
            option = rng.choice(list(parameter.opts) + list(parameter.secondary_opts))
            words.append(option)
            if not getattr(parameter, "is_flag", False) or rng.random() < 0.1:
                words.append(value(rng, option, parameter.type))
    return [word.replace("\0", "") if rng.random() < 0.9 else word for word in words]


def fault_of(answer: Answer) -> str:
    """What is wrong with an answer to a line that nobody means; empty where nothing is."""
    if answer.code == BEGUN:
        return ""
    if "Traceback" in answer.said or answer.code not in (0, 1, 2):
        return f"exit code {answer.code}: {answer.err[-1500:]}"
    if answer.code:
        told = [each for each in answer.err.splitlines() if each.startswith(("icl-lab: ", "Error: "))]
        if len(told) != 1 and answer.code == 2:
            return f"{len(told)} lines: {answer.err[-800:]}"
        if not told:
            return f"says nothing: {answer.err[-800:]}"
        if any(letter in answer.err for letter in "\x1b\x07\x85"):
            return f"control characters: {answer.err!a}"
    return ""


def test_no_command_line_ends_in_a_traceback(ground):
    tally, rng = Tally(), random.Random(2)
    place = ground.copy(stored=True)
    for number in range(LINES):
        words = line(rng)
        if number % 20 == 0:
            place = ground.copy(stored=True)
        try:
            words = ground.words(place, words)
        except ValueError:
            place = ground.copy(stored=True)
        answer = ask(command(words), place, [ground.quick, started], most=MOST)
        wrong = fault_of(answer)
        tally.count("command lines", words[0][:40], ascii(words)[:600], "traceback" if wrong else "", wrong)
    tally.write("lines")
    assert not tally.faults


WRONG = [
    None,
    True,
    -1,
    0,
    3,
    10**30,
    -1.5,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x" * 300,
    "\x1b[31m",
    "a\nb",
    "linear",
]
WRONG += [
    b"x",
    {},
    {"a": 1},
    {1: 2},
    [],
    [3],
    [None],
    ["ssa", 3],
    ("ssa",),
    object(),
    int,
    ...,
    {"train.steps": "many"},
]
WRONG += [{"train.steps": -1}, ["train.steps"], "train.steps=1e400", lambda: 1, set(), range(3), complex(1, 2)]
FUNCTIONS = [name for name in dir(icl) if inspect.isfunction(getattr(icl, name)) and name[0] != "_"]
FUNCTIONS.remove("import_module")  # Python's own
FIELDS = sorted(Where.__dataclass_fields__)


def call(rng: random.Random) -> tuple[str, Callable[[], object]]:
    """A wrong call: of a function, of Where, or of what a stored run and comparison can be asked."""
    kind = rng.choice(["function", "function", "where", "method"])
    if kind == "where":
        given = {name: rng.choice(WRONG) for name in rng.sample(FIELDS, rng.randint(1, 3))}
        return f"Where({given!a})", lambda: icl.list_runs(where=icl.Where(**given))
    if kind == "method":
        target, name = rng.choice(METHODS)
        given = [rng.choice(WRONG) for _ in range(rng.randint(0, 3))]
        return f"{target}.{name}({given!a})", lambda: getattr(SUBJECTS[target](), name)(*given)
    name = rng.choice(FUNCTIONS)
    given = [rng.choice(WRONG) for _ in range(rng.randint(0, 4))]
    more = {
        each: rng.choice(WRONG)
        for each in rng.sample(["seeds", "where", "preset", "to", "nonsense"], rng.randint(0, 2))
    }
    return f"{name}({given!a}, {more!a})", lambda: getattr(icl, name)(*given, **more)


SETTINGS = {"train.steps": 12, "train.batch": 4, "model.width": 8, "model.layers": 1, "model.heads": 2}
SETTINGS |= {"test.prompts": 16, "test.axes.length": [5, 12], "test.axes.sigma_f": [1, 4], "test.axes.sigma_x": 1}
QUIET = {"results": "results", "progress": False}
SUBJECTS = {
    "run": lambda: icl.sweep("linear", "ssa", "smoke", SETTINGS, where=icl.Where(**QUIET)),
    "study": lambda: icl.compare("linear", ["softmax", "ssa"], "smoke", SETTINGS, seeds=2, where=icl.Where(**QUIET)),
}
METHODS = [("run", name) for name in ("heat_map", "prompts", "figure") if hasattr(icl.Run, name)]
METHODS += [("study", name) for name in ("figure", "table", "effects", "page")]


def test_no_call_from_python_ends_in_anothers_exception(ground):
    tally, rng = Tally(), random.Random(3)
    place = ground.copy(stored=True)
    for _ in range(CALLS):
        what, made = call(rng)

        def job(made: Callable[[], object] = made) -> None:
            try:
                made()
            except icl.LabError as error:
                raise SystemExit(1 if str(error).strip() and "\n" not in str(error) else TRACEBACK) from error

        answer = ask(job, place, [ground.quick, started], most=MOST)
        bad = "" if answer.code in (0, 1, BEGUN) else f"exit code {answer.code}: {answer.err[-1500:]}"
        tally.count("Python calls", what.partition("(")[0], what[:600], "traceback" if bad else "", bad)
    tally.write("calls")
    assert not tally.faults


def test_faults_of_a_line_are_told():
    assert fault_of(Answer(1, "", "Traceback (most recent call last)", 0.0))
    assert fault_of(Answer(3, "", "icl-lab: no", 0.0))
    assert fault_of(Answer(2, "", "icl-lab: a\nicl-lab: b\n", 0.0))
    assert fault_of(Answer(1, "", "", 0.0))
    assert fault_of(Answer(1, "", "icl-lab: \x1b[31m\n", 0.0))
    assert not fault_of(Answer(1, "", "icl-lab: no.\n", 0.0))
    assert not fault_of(Answer(BEGUN, "", "", 0.0))
    assert {"sweep", "load"} <= set(FUNCTIONS) & set(dir(api))
