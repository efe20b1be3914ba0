"""Size of the package: code lines, files, commands, options, imports, unclear docstrings; none grows unnoticed.

``tests/budget.toml`` holds the numbers. Code lines are neither blank nor comment nor docstring. A room is a folder, or
a file beside the folders, of ``icl_lab/``. ``python tests/test_budget.py`` prints the numbers of today in that format.
A raised number is a commit of its own that names the ability which pays for it.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "icl_lab"
BUDGET = Path(__file__).with_name("budget.toml")
SLACK = 50  # code lines by which a room may lie below its budget
LOADED = """
import sys
from icl_lab.cli.main import main
try:
    main()
finally:
    print(sum(name.split(".")[0] == "icl_lab" for name in sys.modules))
"""
CLAUSES = re.compile(
    r"\bwhat (is|are|was|were|it|they|has)\b|\b(is|are) no\b|\bhangs? on\b|\b(so many|as many as)\b|\bone's own\b"
    r"|of (its|their|your) own\b|\b(stands?|lies?) (beside|in|for|at)\b|\bbeside\b|\b(told|tells)\b"
    r"|\ba (row|line|file|seed|head) a \w+"
)
COMMANDS = {
    "sweep": ["sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", "--dry-run"],
    "claims": ["claims"],
}


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def code_lines(text):
    """Lines that hold a token other than a comment, docstrings left out."""
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                docstrings |= set(range(first.lineno, first.end_lineno + 1))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def arrows():
    """Pairs of rooms of which the first imports the second."""
    rooms = {room(path) for path in modules()}
    found = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "icl_lab":
                names = [alias.name if alias.name in rooms else "__init__" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icl_lab."):
                names = [node.module.split(".")[1]]
            elif isinstance(node, ast.Import):
                modules_named = [alias.name.split(".") for alias in node.names]
                names = [[*parts, "__init__"][1] for parts in modules_named if parts[0] == "icl_lab"]
            else:
                continue
            found |= {(room(path), name) for name in names if name in rooms and name != room(path)}
    return found


def options():
    """Commands of the program, those of a group each by itself, and their distinct options."""
    from icl_lab.cli.deferred import loaded as whole
    from icl_lab.cli.main import cli

    commands = [whole(command) for command in cli.commands.values()]
    commands = [one for each in commands for one in getattr(each, "commands", {"": each}).values()]
    return len(commands), len({name for each in commands for one in each.params for name in one.opts if "--" in name})


def loaded(args):
    """Number of our modules that a command loads."""
    here = {name: value for name, value in os.environ.items() if name != "ICL_LAB_EVIDENCE"}
    words = [sys.executable, "-c", LOADED, *args]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=PACKAGE.parent, env=here)
    return int(done.stdout.split()[-1])


def sizes():
    found = {}
    for path in modules():
        found[room(path)] = found.get(room(path), 0) + code_lines(path.read_text())
    return found


def patterns():
    """Docstrings with a clause that hides its noun or verb: ``what is``, ``hangs on``, ``a row a seed``, ``told``."""
    found = 0
    for path in modules():
        nodes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
        parts = (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, nodes))
        found += sum(bool(CLAUSES.search(ast.get_docstring(each) or "")) for each in parts)
    return found


def counts():
    commands, named = options()
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".js", ".css", ".html"}]
    found = {
        "files": len(files),
        "rooms": len({room(path) for path in modules()}),
        "arrows": len(arrows()),
        "commands": commands,
    }
    return found | {"options": named, "patterns": patterns()}


def toml():
    lines = [f"{name} = {number}" for name, number in counts().items()]
    lines += ["", "[modules]  # that a command loads", *(f"{name} = {loaded(args)}" for name, args in COMMANDS.items())]
    return "\n".join([*lines, "", "[code]", *(f"{name} = {number}" for name, number in sorted(sizes().items())), ""])


@pytest.fixture(scope="module")
def budget():
    return tomllib.loads(BUDGET.read_text())


def test_code_lines_of_each_room(budget):
    found = sizes()
    assert not {name: n for name, n in found.items() if n > budget["code"].get(name, 0)}, "above the budget"
    spare = {name: n for name, n in budget["code"].items() if found.get(name, 0) <= n - SLACK or name not in found}
    assert not spare, "below the budget: write the smaller number into tests/budget.toml"


def test_counts(budget):
    found = counts()
    assert found == {name: budget[name] for name in found}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_modules_that_a_command_loads(budget, command):
    assert loaded(COMMANDS[command]) == budget["modules"][command]


def test_code_lines_by_hand():
    assert (
        code_lines('"""Two\nlines."""\n\n# note\nx = """a\nb"""\n\n\ndef f():\n    """Doc."""\n    return 1  # end\n')
        == 4
    )


if __name__ == "__main__":
    print(toml(), end="")
