"""Hash of the code of a part of this package: of its syntax tree, so that comments, docstrings and types do not count.

A run keeps it, and a later command says where the code is another one. What a class names counts too, as far as it is
defined in the packages of parts: a base class, a function, a constant, and what these name. What only words answers or
labels pictures does not.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

PACKAGES = ("icl_lab.normalizers.", "icl_lab.tasks.", "icl_lab.model.positions", "icl_lab.analyses.")
# Bases without arithmetic: declarations of tasks and of analyses.
BASES = ("tasks.base", "tasks.declared", "tasks.wording", "tasks.capabilities", "analyses.frame")
# Members of a class that only word answers or label pictures.
WORDS = {"words", "marks", "spelled", "sentence", "said", "metric_labels", "axis_labels"}
WORDS |= {"table", "panels", "figures", "finding", "equivariant"}
UNTOLD = ("annotation", "returns", "type_comment", "type_params", "kind", "ctx")

Place = tuple[str, str]  # a module, and a name at its top


@cache
def code_hash(part: type) -> str:
    """Return twelve hexadecimal digits that are others where the code of a part is another one."""
    found, left = dict[Place, str](), [(part.__module__, part.__name__)]
    while left:
        place = left.pop()
        if place in found or (node := _definitions(place[0]).get(place[1])) is None:
            continue
        found[place] = repr(_plain(node))
        left += _named(place[0], node)
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]


def file_of(part: type) -> str:
    """The file of a part, relative to the folder of the package: ``icl_lab/normalizers/ssa.py``."""
    module = sys.modules[part.__module__]
    name = part.__module__.replace(".", "/")
    return f"{name}/__init__.py" if hasattr(module, "__path__") else f"{name}.py"


def _named(module: str, node: ast.AST) -> Iterator[Place]:
    """Yield what a definition names in the packages of parts."""
    imports = _imports(module)
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            other, name = imports.get(each.value.id, ("", ""))
            if not name and _counts(other):
                yield other, each.attr
        elif isinstance(each, ast.Name):
            other, name = imports.get(each.id, (module, each.id))
            if name and _counts(other):
                yield other, name


def _counts(module: str) -> bool:
    return module.startswith(PACKAGES) and module.removeprefix("icl_lab.") not in BASES


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Functions, classes and constants at the top of a module, by name."""
    found = dict[str, ast.AST]()
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if isinstance(node, ast.ClassDef):
                node.body = [each for each in node.body if _name(each) not in WORDS]
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            found |= dict.fromkeys(names, node)
    return found


def _name(node: ast.stmt) -> str:
    """Name of a method, or of a field with a type; empty of another statement."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return node.name if isinstance(node, ast.FunctionDef) else ""


@cache
def _imports(module: str) -> dict[str, Place]:
    """Names that a module imports -> where from; an empty name means a whole module."""
    found = dict[str, Place]()
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                is_module = isinstance(sys.modules.get(whole), ModuleType)
                found[each.asname or each.name] = (whole, "") if is_module else (node.module, each.name)
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = getattr(sys.modules.get(module), "__file__", None)
    return ast.parse(Path(path).read_text(encoding="utf-8") if path else "")


def _plain(node: object) -> object:
    """A syntax tree as lists and texts, alike for every version of Python that reads it."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None:
        fields["body"] = fields["body"][1:]
    told = {name: _plain(value) for name, value in fields.items() if name not in UNTOLD and value not in (None, [])}
    return [type(node).__name__, *(part for item in told.items() for part in item)]
