"""Hashes of code: of its syntax tree, so that comments, docstrings and types do not count.

A run keeps them, and a later command says where the code is another one. What a definition names counts too, as far as
it is defined in the packages that are asked for: a base class, a function, a constant, and their names in turn. What
only words answers or labels pictures does not. Of a file from outside all of it counts, and the files of the user that
it imports.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cache
from pathlib import Path
from types import ModuleType

from icl_lab.base.version import PACKAGE

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
    return _digest(sorted(_closure([(part.__module__, part.__name__)], PACKAGES).items()))


def closure_hash(roots: Iterable[Place], packages: tuple[str, ...]) -> str:
    """Return twelve digits for definitions and all that they name in ``packages`` (beginnings of modules' names).

    A definition is a name at the top of a module, or ``Class.method``. A module from outside counts whole, with those
    of the user's that it imports, wherever it lies.
    """
    modules, left = dict[str, ast.Module](), [module for module, _ in roots if not _is_ours(module)]
    tops = {module.partition(".")[0] for module in left}
    while left:
        if (module := left.pop()) not in modules:
            modules[module] = _tree(module)
            left += [other for other in _imported(module) if _is_users(other, tops)]
    named = [place for module, tree in modules.items() for place in _named(module, tree, packages)]
    reached = _closure([*roots, *named], packages)
    # Without the names of modules from outside: they depend on the folder.
    own = sorted(repr(_plain(tree)) for tree in modules.values())
    return _digest([sorted(item for item in reached.items() if _is_ours(item[0][0])), own])


def file_of(part: type) -> str:
    """The file of a part, relative to the folder of the package: ``icl_lab/normalizers/ssa.py``."""
    module = sys.modules[part.__module__]
    name = part.__module__.replace(".", "/")
    return f"{name}/__init__.py" if hasattr(module, "__path__") else f"{name}.py"


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


def _closure(roots: Iterable[Place], packages: tuple[str, ...]) -> dict[Place, str]:
    """The definitions that are reached from some, as text."""
    reached, left = dict[Place, str](), list(roots)
    while left:
        place = left.pop()
        if place in reached or (node := _definitions(place[0]).get(place[1])) is None:
            continue
        reached[place] = repr(_plain(node))
        left += _named(place[0], node, packages)
    return reached


def _named(module: str, node: ast.AST, packages: tuple[str, ...]) -> Iterator[Place]:
    """Yield what a definition names in some packages."""
    imports = _imports(module)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            other, name = imports.get(inner.value.id, ("", ""))
            if not name and _counts(other, packages):
                yield other, inner.attr
        elif isinstance(inner, ast.Name):
            other, name = imports.get(inner.id, (module, inner.id))
            if name and _counts(other, packages):
                yield other, name


def _counts(module: str, packages: tuple[str, ...]) -> bool:
    return module.startswith(packages) and module.removeprefix("icl_lab.") not in BASES


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "icl_lab"


def _is_users(module: str, tops: Iterable[str]) -> bool:
    """True if a module is one of the user's own files, or of a package of these names; not of Python or installed."""
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    if _is_ours(module) or not path.endswith(".py"):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return module.partition(".")[0] in tops or not any(Path(path).is_relative_to(place) for place in installed)


def _imported(module: str) -> Iterator[str]:
    """Yield the modules that a module imports, wherever it does; of ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names for name in _and_above(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            yield from _and_above(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _and_above(module: str) -> Iterator[str]:
    """Yield a module and the packages above it, which are imported with it."""
    words = module.split(".")
    yield from (".".join(words[:count]) for count in range(1, len(words) + 1))


def _base(module: str, node: ast.ImportFrom) -> str:
    """The module that ``from ... import`` names, a relative one resolved."""
    if not node.level:
        return node.module or ""
    package = str(getattr(sys.modules.get(module), "__package__", "") or "").split(".")
    return ".".join([*package[: len(package) + 1 - node.level], *filter(None, [node.module])])


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Functions, classes and constants at the top of a module, by name."""
    definitions = dict[str, ast.AST]()
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if isinstance(node, ast.ClassDef):
                node = copy(node)  # the tree stays whole
                node.body = [member for member in node.body if _name(member) not in WORDS]
                definitions |= {f"{node.name}.{_name(member)}": member for member in node.body if _name(member)}
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [member.id for target in targets for member in ast.walk(target) if isinstance(member, ast.Name)]
            definitions |= dict.fromkeys(names, node)
    return definitions


def _name(node: ast.stmt) -> str:
    """Name of a method, or of a field with a type; empty of another statement."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return node.name if isinstance(node, ast.FunctionDef) else ""


@cache
def _imports(module: str) -> dict[str, Place]:
    """Names that a module imports -> where from; an empty name means a whole module."""
    sources = dict[str, Place]()
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and (base := _base(module, node)):
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                is_module = isinstance(sys.modules.get(whole), ModuleType) or bool(_file(whole))
                sources[alias.asname or alias.name] = (whole, "") if is_module else (base, alias.name)
    return sources


@cache
def _tree(module: str) -> ast.Module:
    path = _file(module)
    return ast.parse(Path(path).read_text(encoding="utf-8") if path else "")


def _file(module: str) -> str:
    """The file of a module, empty without one; of this package also where nothing has imported it yet.

    Else a hash would depend on the modules that the command at work happens to load.
    """
    if path := getattr(sys.modules.get(module), "__file__", None):
        return str(path)
    at = PACKAGE.joinpath(*module.split(".")[1:]) if _is_ours(module) else None
    files = [] if at is None else [at.with_suffix(".py"), at / "__init__.py"]
    return next((str(file) for file in files if file.is_file()), "")


def _plain(node: object) -> object:
    """A syntax tree as lists and texts, alike for every version of Python that reads it."""
    if isinstance(node, list):
        return [_plain(child) for child in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None:
        fields["body"] = fields["body"][1:]
    texts = {name: _plain(value) for name, value in fields.items() if name not in UNTOLD and value not in (None, [])}
    return [type(node).__name__, *(part for item in texts.items() for part in item)]
