"""Nothing outside ``icl_lab/tasks`` knows a task, or an axis of one, by its name."""

import ast
import functools
import re
from pathlib import Path

import pytest

import icl_lab
from icl_lab import tasks

ROOT = Path(icl_lab.__file__).parent

# Words with a meaning of their own elsewhere: the analysis called needle, the column of a published table; what one
# published question or one benchmark is about, by definition; and the task of a command that names none.
ELSEWHERE = {
    ("analyses/boundary/__init__.py", "linear"),  # asked where the command names no task
    ("analyses/equivariance.py", "linear"),  # the same
    ("analyses/deviant.py", "sigma"),
    ("analyses/needle.py", "needle"),
    *(("analyses/probe_pairs.py", name) for name in ("masked-text", "pairs")),  # a refusal; pairs of sentences
    ("cli/commands/export.py", "sigma_f"),  # an example in its help
    ("cli/commands/rules.py", "pairs"),  # of timings
    ("model/spec.py", "linear"),  # a way of reading in
    ("analyses/printed_bounds.py", "linear"),  # a way of reading in
    ("analyses/printed_bounds.py", "sigma"),  # a column of a published table
    # columns of the evidence's tables, the same in every part
    *(("runs/evidence/tables.py", axis) for axis in ("sigma_x", "sigma_f", "noise", "sigma", "depth", "kept")),
    *(("runs/evidence/tables.py", axis) for axis in ("ignored", "pairs", "concentration")),
    ("cli/commands/prompted.py", "digits"),  # decimals of an answer
    *((f"extras/prompted/{file}.py", "digits") for file in ("report", "study")),
    ("claims/judge.py", "noise"),  # what test prompts add to the interval of a claim
    ("claims/headlines.py", "flip-flop"),  # an experiment, flip-flop-glitches
    ("training/recipe.py", "linear"),  # a schedule
    # words that are explained wherever they stand
    *(("base/terms.py", name) for name in ("sigma", "sigma_x", "sigma_f", "depth", "mean-value")),
    *((file, "text") for file in ("analyses/attention/page.py", "base/option_values.py")),
    *((f"extras/language/{file}.py", name) for file in ("study", "needle") for name in ("needle", "text")),
    *(("cli/commands/language.py", name) for name in ("needle", "text")),
    *(("extras/language/report.py", name) for name in ("needle", "depth")),
    *(("extras/language/study.py", name) for name in ("needle", "depth", "text")),
    # What a language model is told of each task: tasks themselves know no language models.
    *(("extras/prompted/speech.py", f"icl_lab.tasks.{name}") for name in ("flip_flop", "linear", "maximum", "needle")),
    *(("extras/prompted/speech.py", f"icl_lab.tasks.{name}") for name in ("quantifier", "recall")),
}


# What all tasks share.
BASES = {f"icl_lab.tasks.{name}" for name in ("base", "capabilities", "wording", "texts")}
BASES |= {f"icl_lab.tasks.texts.{name}" for name in ("compressors", "corpus", "grammar", "ngrams")}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "tasks")


@functools.cache
def known():
    """The names of tasks, and of their axes; ``length`` is every task's."""
    axes = {axis for name in tasks.names() for axis in tasks.build(name).axes["full"]} - {"length"}
    return set(tasks.names()), axes


def docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", [])
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield first.value


def found(source):
    """The names that a source knows: text that is one (options may follow it), keywords, identifiers, and imports."""
    names, axes = known()
    tree = ast.parse(source)
    told = {id(node) for node in docstrings(tree)}
    hits = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            text = node.value
            hits |= {name for name in names | axes if text == name or text.startswith(f"{name}:")}
            # A name of two parts is no word of plain English: inside a text it is the name as well.
            hits |= {name for name in names | axes if re.search(r"[_-]", name) and re.search(rf"\b{name}\b", text)}
            hits |= {axis for axis in axes if re.search(rf"axes\.{axis}=", text)}
        elif isinstance(node, ast.keyword) and node.arg in axes:
            hits.add(node.arg)
        elif isinstance(node, ast.Name | ast.arg) and "_" in (name := getattr(node, "id", getattr(node, "arg", ""))):
            hits |= {name} & axes
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icl_lab.tasks."):
            hits |= {node.module} - BASES
    return hits


@pytest.mark.slow
def test_no_task_or_axis_is_known_by_name():
    """Code outside the tasks asks the task instead."""
    hits = {(str(path.relative_to(ROOT)), name) for path in modules() for name in found(path.read_text())}
    assert hits - set(ELSEWHERE) == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("x = 'linear'", "linear"),
        ("x = 'every:balance=half'", "every"),
        ("x = cell['sigma_f']", "sigma_f"),
        ("x = f'over sigma_f {low}'", "sigma_f"),
        ("task.sample(rng, 1, 2, depth=3)", "depth"),
        ("sigma_x = 1", "sigma_x"),
        ("def f(sigma_f): pass", "sigma_f"),
        ("from icl_lab.tasks.needle import Needle", "icl_lab.tasks.needle"),
        ("x = 'test.axes.sigma=1'", "sigma"),
    ],
)
def test_a_name_is_seen_wherever_it_stands(source, name):
    assert name in found(source)


def test_plain_words_and_docstrings_are_no_names():
    assert not found('"""About linear and sigma_f."""\nx = "every seed has some depth"\nlinear = torch.nn.Linear')


def test_what_is_on_the_list_exists():
    assert {str(path.relative_to(ROOT)) for path in modules()} >= {place for place, _ in ELSEWHERE}
