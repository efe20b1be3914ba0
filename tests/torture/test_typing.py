"""Command lines and Python calls that nobody means, drawn from what there is: one clear line, never a traceback."""

import inspect
import os
import random

import pytest

import icl_lab as icl
from icl_lab.execute.where import Where
from tests.cli.test_every_option import COMMANDS, NUMBERS, PARTS, TEXTS
from tests.torture.faults import ROUNDS
from tests.torture.ground import AXES, FROM_NOTHING, READERS, SMALL, _quick
from tests.torture.process import TRACEBACK, Hook, ask

COUNT = 30  # lines or calls of a test
MOST = 60.0  # seconds that a line may take
BEGUN = 77  # exit code of a line that began to train: it was accepted
CONTROL = ["\x1b[31m", "\x07", "a\rb", "\x85", "\u202e", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]
RIGHT = ["linear", "ssa", "smoke", "1", "2", "5,12", "0.5", "results", "page.md", "model", "book.txt", "tiny"]
ODD = [*NUMBERS, *TEXTS, *CONTROL, *RIGHT, "[1]", "{}", "true", "nan,-1", "1,1e9"]


def started() -> None:
    """A line that begins to train or to measure ends: it was understood."""
    from icl_lab.analyses.profiles import costs, functions
    from icl_lab.testing import verdicts
    from icl_lab.training import loop

    def begin(*words: object, **names: object) -> None:
        os._exit(BEGUN)

    loop.train = begin
    functions.everything = costs.measure = verdicts.verdicts = begin


def line(rng: random.Random) -> list[str]:
    """A command line, right or bare, with a few words bent: odd ones, and options of any command."""
    path, other = rng.sample(sorted(COMMANDS), 2)
    words = list(rng.choice([path, path, *rng.choices([*FROM_NOTHING.values(), *READERS.values()], k=2)]))
    params = [*COMMANDS[path].params * 2, *COMMANDS[other].params]
    options = ["--set", *(each for param in params for each in (*param.opts, *param.secondary_opts) if each[0] == "-")]
    for _ in range(rng.randint(1, 5)):
        at, option, odd = rng.randint(0, len(words)), rng.choice(options), rng.choice(ODD)
        part = rng.choice(PARTS.get(option, [""]))
        words[at : at + rng.randint(0, 1)] = rng.choice([[odd], [option], [option, odd], [option, part + odd]])
    return [word.replace("\0", "") if rng.random() < 0.9 else word for word in words]


WRONG = [None, True, -1, 0, 3, 10**30, -1.5, float("nan"), float("inf"), "", " ", "x" * 300, "\x1b[31m", "a\nb"]
WRONG += ["linear", b"x", {}, {"a": 1}, {1: 2}, [], [3], [None], ["ssa", 3], ("ssa",), object(), int, ...]
WRONG += [{"train.steps": "many"}, {"train.steps": -1}, ["train.steps"], "train.steps=1e400", lambda: 1, set()]
WRONG += [range(3), complex(1, 2)]
FUNCTIONS = [name for name in dir(icl) if inspect.isfunction(getattr(icl, name)) and name[0] != "_"]
FUNCTIONS.remove("import_module")  # Python's own
SETTINGS = SMALL | AXES
QUIET = {"results": "results", "progress": False}
SUBJECTS = {
    "run": lambda: icl.sweep("linear", "ssa", "smoke", SETTINGS, where=icl.Where(**QUIET)),
    "study": lambda: icl.compare("linear", ["softmax", "ssa"], "smoke", SETTINGS, seeds=2, where=icl.Where(**QUIET)),
}
METHODS = [("run", name) for name in ("heat_map", "prompts", "figure") if hasattr(icl.Run, name)]
METHODS += [("study", name) for name in ("figure", "table", "effects", "page")]


def call(rng: random.Random) -> tuple[str, Hook]:
    """A wrong call: of a function, of Where, or of what a stored run and comparison can be asked."""
    given = [rng.choice(WRONG) for _ in range(rng.randint(0, 4))]
    kind = rng.choice(["function", "function", "where", "method"])
    if kind == "where":
        fields = {name: rng.choice(WRONG) for name in rng.sample(sorted(Where.__dataclass_fields__), rng.randint(1, 3))}
        return f"Where({fields!a})", lambda: icl.list_runs(where=icl.Where(**fields))
    if kind == "method":
        target, name = rng.choice(METHODS)
        return f"{target}.{name}({given!a})", lambda: getattr(SUBJECTS[target](), name)(*given)
    name = rng.choice(FUNCTIONS)
    names = rng.sample(["seeds", "where", "preset", "to", "nonsense"], rng.randint(0, 2))
    more = {each: rng.choice(WRONG) for each in names}
    return f"{name}({given!a}, {more!a})", lambda: getattr(icl, name)(*given, **more)


def called(made: Hook) -> None:
    """Do a call; a complaint of the laboratory has one line."""
    try:
        made()
    except icl.LabError as error:
        raise SystemExit(f"icl-lab: {error}" if str(error).strip() and "\n" not in str(error) else TRACEBACK) from error


pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(0)]


@pytest.mark.parametrize("seed", range(2 * ROUNDS))
def test_no_command_line_ends_in_a_traceback(ground, seed):
    rng, wrong = random.Random(f"lines {seed}"), []
    place = ground.copy(ground.stored)
    for number in range(COUNT):
        words = line(rng)
        if number % 10 == 0:
            place = ground.copy(ground.stored)
        try:
            answer = ground.ask(words, place, started, most=MOST)
        except ValueError:  # a line before wrote another folder of the kind that it names
            continue
        if found := answer.wrong((0, 1, 2, BEGUN)):
            wrong.append((ascii(words)[:600], found))
    assert wrong == []


@pytest.mark.parametrize("seed", range(2 * ROUNDS))
def test_no_call_from_python_ends_in_anothers_exception(ground, seed):
    rng, wrong = random.Random(f"calls {seed}"), []
    place = ground.copy(ground.stored)
    for _ in range(COUNT):
        what, made = call(rng)
        answer = ask(lambda made=made: called(made), place, [_quick, started], most=MOST)
        if "Traceback" in answer.err or answer.code not in (0, 1, BEGUN):
            wrong.append((what[:600], answer.code, answer.err[-1500:]))
    assert wrong == []
