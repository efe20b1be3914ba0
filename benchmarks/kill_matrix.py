"""Planted faults: which test catches each of them, and which faults no test catches.

    pip install coverage
    python -m benchmarks.kill_matrix 20 tests/comparison icl_lab/comparison/*.py

runs the tests in a clone, draws 20 faults among the lines that they execute, and plants one after the other: the tests
that execute its line are run, those of few lines first, until one fails. A survivor is a gap, or changes nothing seen.
"""

import ast
import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEEN, MOST = "executed.json", 150  # in the clone: {file: {line: [tests]}}; tests against one fault
PAIRS = ["Lt LtE", "Gt GtE", "Eq NotEq", "In NotIn", "Is IsNot", "And Or", "Add Sub", "Mult Div"]
OTHER = {getattr(ast, a): getattr(ast, b) for pair in map(str.split, PAIRS) for a, b in (pair, pair[::-1])}


def changed(node: ast.AST) -> ast.expr | None:
    """Return what stands in the place of an expression as a fault; None where there is no fault of it."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in OTHER:
            return ast.Compare(left, [OTHER[type(operator)]()], right)
        case ast.BoolOp(operator, values):
            return ast.BoolOp(OTHER[type(operator)](), values)
        case ast.BinOp(left, operator, right) if type(operator) in OTHER:
            return ast.BinOp(left, OTHER[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(bool(value)):
            return ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            return ast.Constant(value + 1)
    return None


def faults(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line of each fault, what it changes, and the source with it; all other lines are as they were."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        new = changed(node)
        if new is not None and isinstance(node, ast.expr) and node.lineno == node.end_lineno:
            at, text, ends = (
                node.lineno - 1,
                lines[node.lineno - 1].encode(),
                slice(node.col_offset, node.end_col_offset),
            )
            line = text[: ends.start] + f"({ast.unparse(new)})".encode() + text[ends.stop :]
            change = f"{text[ends].decode()} -> {ast.unparse(new)}"
            yield node.lineno, change, "".join([*lines[:at], line.decode(), *lines[at + 1 :]])


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of pytest: begin to count which test executes which lines."""
    global counted
    counted = importlib.import_module("coverage").Coverage(None, source=["icl_lab"], config_file=False)
    counted.start()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Count what follows for this test."""
    counted.switch_context(nodeid)


def pytest_unconfigure() -> None:
    """Write down the tests of each line."""
    counted.stop()
    data = counted.get_data()
    found = {os.path.relpath(path): data.contexts_by_lineno(path) for path in data.measured_files()}
    size = Counter(test for lines in found.values() for tests in lines.values() for test in tests)
    for lines in found.values():
        lines |= {line: sorted({*tests} - {""}, key=size.get) for line, tests in lines.items()}
    Path(SEEN).write_text(json.dumps(found))


def tested(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of every day in the clone."""
    command = [sys.executable, "-m", "pytest", "-m", "not exhaustive", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment)


def main(count: int, tests: str, *files: str) -> None:
    """Print a line for each fault: where, what, and the test that fails with it."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made) / "clone"
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, place], check=True)
        for name in subprocess.getoutput(f"git -C '{ROOT}' diff --name-only --diff-filter=d HEAD").splitlines():
            shutil.copy(ROOT / name, place / name)
        done = tested(place, "-p", "benchmarks.kill_matrix", *tests.split())
        if done.returncode:
            raise SystemExit(f"tests fail without any fault:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        seen = json.loads((place / SEEN).read_text())
        every = [(name, *fault) for name in files for fault in faults((place / name).read_text())]
        planted = [fault for fault in every if seen.get(fault[0], {}).get(str(fault[1]))]
        for name, line, change, source in random.Random(0).sample(planted, min(count, len(planted))):
            sound = (place / name).read_text()
            (place / name).write_text(source)
            said = tested(place, "-x", "-o", "timeout=120", *seen[name][str(line)][:MOST]).stdout
            (place / name).write_text(sound)
            killed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", said, re.MULTILINE)
            print(f"{name}:{line}  {change}  {killed[1] if killed else 'SURVIVED'}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
