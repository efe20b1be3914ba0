"""Every option of every command, walked over as the commands stand, is fed what nobody means.

Whatever comes in, a command answers with an exit code of its own and writes nothing outside its results.
"""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from icl_lab import normalizers, tasks
from icl_lab.analyses.profiles import costs, functions
from icl_lab.cli.deferred import loaded
from icl_lab.cli.main import cli, main
from icl_lab.cli.values import Finite, Folder
from icl_lab.execute.tracking import KINDS
from icl_lab.figures import rules
from icl_lab.model import positions
from icl_lab.runs import environment, estimate
from icl_lab.runs.spec import resolve
from icl_lab.testing import facts, verdicts
from icl_lab.training import loop

CODES = {0, 1, 2, 75, 130}
# What stands in for everything that has to be said beside the option that is tried.
USUAL = {"--task": "linear", "--attn": "softmax", "--preset": "smoke", "--prompt": "1,2,3", "--dry-run": None}
USUAL |= {"--seeds": "1", "--only": None, "--model": "some-model"}
# Few prompts, which are written nowhere.
UNUSUAL = {"prompted": {"--prompts": "2", "--write": os.devnull}}
ARGUMENTS = {"list": ["runs"], "experiment": ["ssa-figure3"], "judge": ["ssa"], "check-part": ["softmax"]}
NUMBERS = ["nan", "inf", "-inf", "-1", "0", "0.5", "1e9", "1000000000", "1000000000000", str(10**30), str(10**400)]
NUMBERS += ["1e999", "²", "٣", "1.5", "-0", "1e-400", "0x10", "1_000", "1000000"]
CACHES = ("__pycache__", "torchinductor")  # what imports write
TEXTS = ["", " ", "\0", "a\nb", "\udcff", "x" * 300, "x" * 30_000, "x/" * 3000, "$\\foo$", "../x", "..", "."]
TEXTS += ["/dev/null", "/dev/null/x", "runs", "a:b=c", "a=b", ":", "=", ",", "--", "-", "<b>`|", "linear", "ssa", "a b"]
HOSTILE = st.sampled_from([*NUMBERS, *TEXTS])
# No absolute path among them: with a comma behind it, it would be the name of a folder outside.
LISTED = st.lists(HOSTILE.filter(lambda word: not word.startswith("/")), min_size=2, max_size=3).map(",".join)


def walk(group, path=()):
    """Yield every command that is shown, by its words: ("evidence", "list")."""
    for name, command in sorted((name, loaded(each)) for name, each in group.commands.items()):
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        elif not command.hidden or name == "make":
            yield (*path, name), command


def fields(part, path=""):
    """The paths of ``--set``, as a specification has them."""
    for name, value in part.items():
        if isinstance(value, dict):
            yield from fields(value, f"{path}{name}.")
        else:
            yield path + name


def choices(*registries):
    """Each option of each part as ``name:option=``."""
    for registry in registries:
        yield from (f"{name}:{option}=" for name in registry.names() for option in registry.options(name))


SETTINGS = [f"{path}=" for path in fields(resolve("linear", "softmax", "smoke").whole()) if "." in path]
SETTINGS += ["model.rope_theta=", "train.shift.sigma_x="]
SETTINGS += [f"model.positions={c}" for c in choices(positions.registry)]
PARTS = {option: list(choices(normalizers.registry)) for option in ("--attn", "--swap", "--baseline")}
PARTS |= {"--task": list(choices(tasks.registry)), "--set": SETTINGS, "--track": [f"{name}:" for name in KINDS]}


def values(option):
    """What an option is fed: hostile words and lists of them, and where parts are named, hostile options of parts."""
    found = HOSTILE | LISTED
    if option in PARTS:
        found |= st.tuples(st.sampled_from(PARTS[option]), HOSTILE | LISTED).map("".join)
    return found


def usual(command, tried):
    """The words that a command needs before it comes to the option that is tried."""
    words = []
    known = USUAL | UNUSUAL.get(command.name, {})
    for parameter in command.params:
        option = max(parameter.opts, key=len)
        if option in known and option != tried and isinstance(parameter, click.Option):
            words += [option] if known[option] is None and parameter.is_flag else []
            words += [option, known[option]] if known[option] is not None else []
    return words


class Written:
    """The files and folders that this process makes, moves or removes while it is watched."""

    def __init__(self):
        self.on, self.paths = False, []
        sys.addaudithook(self._see)

    def _see(self, event, arguments):
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not isinstance(path, int) and writing:
                self.paths.append(os.fsdecode(path))
        elif event in ("os.mkdir", "os.remove", "os.rmdir"):
            if arguments[-1] == -1:  # else a name in a folder that is open: of a tree that is removed from its top
                self.paths.append(os.fsdecode(arguments[0]))
        elif event == "os.rename":
            self.paths += [os.fsdecode(path) for path in arguments[:2]]

    @contextlib.contextmanager
    def watched(self):
        self.on, self.paths = True, []
        try:
            yield
        finally:
            self.on = False


WRITTEN = Written()


@pytest.fixture
def idle(tmp_path, monkeypatch, run):
    """A folder of its own, and nothing that trains, measures, draws or starts a process; ``run`` takes signals back."""
    never, place = Mock(side_effect=AssertionError("this computes")), tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (1.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)
    monkeypatch.setattr(environment, "commit", lambda *_: "unknown")
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # they would stay, for all tests after this
    monkeypatch.setattr(functions, "GRIDS", {})
    monkeypatch.setattr(rules, "functions", lambda *_: {})
    monkeypatch.setattr(costs, "measure", lambda *_, **__: costs.printed_times())
    monkeypatch.setattr(costs, "table", lambda *_: [])
    monkeypatch.setattr(rules, "costs", lambda *_: Figure())
    monkeypatch.setattr(verdicts, "verdicts", lambda part: iter(()))
    monkeypatch.setattr(facts, "broken_promise", lambda choice: "")
    monkeypatch.setattr(facts, "nearest", lambda choice: ("softmax", 0.0))
    monkeypatch.setattr(loop, "advance", never)
    monkeypatch.setattr(subprocess, "run", never)
    monkeypatch.setattr(subprocess, "Popen", never)
    return place


def answer(words, monkeypatch):
    """The exit code of a command line and what it says on standard error."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["icl-lab", *words])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), WRITTEN.watched():
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code
    return code, err.getvalue()


COMMANDS = dict(walk(cli))


def tried(examples):
    """How often each option of a command is fed something; the same words at each run of the tests."""
    how = {"derandomize": True, "database": None, "deadline": None, "max_examples": examples}
    how["phases"] = [Phase.generate]  # to shrink what runs a command takes longer than to read it
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(**how, suppress_health_check=checks)


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
@given(data=st.data())
@tried(2)
def test_no_option_of_any_command_is_answered_by_a_traceback(path, idle, monkeypatch, data):
    """Each option beside what is usual; more words are typed in tests/torture."""
    command = COMMANDS[path]
    for parameter in command.params:
        option = max(parameter.opts, key=len)
        words = [*path, *usual(command, option)]
        if isinstance(parameter, click.Argument):
            words += ["--", data.draw(values(option))]
        elif parameter.is_flag:
            words += [*ARGUMENTS.get(path[-1], []), option]
        else:
            words += [*ARGUMENTS.get(path[-1], []), f"{option}={data.draw(values(option))}"]
        code, err = answer(words, monkeypatch)
        assert code in CODES, (words, code)
        assert "Traceback" not in err
        if code == 2:
            complaints = [line for line in err.splitlines() if line.startswith(("icl-lab: ", "Error: "))]
            assert len(complaints) == 1, err
            assert len(complaints[0]) < 3000
        # Pages are written where the command is typed.
        anywhere = option in ("--results", "--to", "--out", "--write") or path[-1] == "site"
        below = idle.parent if anywhere else idle / "results"
        written = {path for path in WRITTEN.paths if not any(word in path for word in CACHES)}
        for path in written - {os.devnull}:  # which may be named, and stays a device
            assert Path(idle, path).resolve().is_relative_to(below), path
        assert not Path(os.devnull).is_file()


def test_every_number_and_every_path_has_bounds():
    """So that an option is bounded by being declared; one of a new command as well."""
    for path, command in COMMANDS.items():
        for parameter in command.params:
            kind, where = parameter.type, (*path, parameter.opts)
            number = isinstance(kind, click.types.IntParamType | click.types.FloatParamType)
            assert not number or hasattr(kind, "max"), where
            if isinstance(kind, click.IntRange | click.FloatRange):
                assert None not in (kind.min, kind.max), where
            if isinstance(kind, click.FloatRange):
                assert isinstance(kind, Finite), where
            assert not isinstance(kind, click.Path) or isinstance(kind, Folder) or kind.exists, where
