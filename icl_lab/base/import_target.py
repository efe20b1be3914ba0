"""Target of ``--import`` and its import: a module by its name, or a file or a folder by its path."""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path

from icl_lab.base.errors import BadValue, LabError
from icl_lab.base.version import PACKAGE

IMPORTLIB = Path(importlib.__file__).parent


def is_path(text: str) -> bool:
    """True if a text names a file or a folder, such as ``./mine.py``, and not a module, such as ``mypackage``."""
    return text.endswith(".py") or text.startswith((".", "~")) or "/" in text or os.sep in text


def resolved(given: str) -> str:
    """Return the absolute path or the module that ``given`` names.

    Raises ``BadValue`` with the nearest names for an unknown file or module.
    """
    if is_path(given):
        try:
            path = Path(given).expanduser().resolve()
        except RuntimeError:  # nobody is called so, or whoever runs this has no home
            raise BadValue(f"--import {given}: there is no such home folder.") from None
        if not path.exists():
            raise BadValue(f"--import {given}: there is no such file. {_neighbours(path)}")
        if path.is_dir() and not (path / "__init__.py").exists():
            raise BadValue(f"--import {given}: the folder is no package, because it has no __init__.py.")
        if not path.is_dir() and path.suffix != ".py":
            raise BadValue(f"--import {given}: a file of parts ends in .py.")
        return str(path)
    if not all(word.isidentifier() for word in given.split(".")):
        raise BadValue(f"--import '{given}' is neither the name of a module nor the path of a .py file.")
    top = given.partition(".")[0]
    importlib.invalidate_caches()
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        here = [f"./{name}" for name in (top, f"{top}.py") if Path(name).exists()]
        hint = f" To import what lies here: --import {here[0]}." if here else ""
        raise BadValue(f"--import {given}: there is no module called '{top}' in this environment.{hint}")
    return given


def bring(target: str) -> None:
    """Import a module by name, or a file or folder by its absolute path; raises whatever its code raises."""
    if not is_path(target):
        importlib.import_module(target)
    elif target.endswith(".py"):
        _file(Path(target))
    else:
        _folder(Path(target))


def module_name(target: str) -> str:
    """Return what the imported module is called; two files of one name in two folders are two modules."""
    path = Path(target)
    if not is_path(target) or path.suffix != ".py":
        return path.name if is_path(target) else target
    return f"imported_{hashlib.sha256(target.encode()).hexdigest()[:8]}_{re.sub(r'[^0-9A-Za-z]', '_', path.stem)}"


def complaint(error: BaseException) -> str:
    """Return one line: file and line of the user's own code, and what went wrong there."""
    first = (str(error.msg if isinstance(error, SyntaxError) else error).splitlines() or [""])[0]
    what = "it calls sys.exit" if isinstance(error, SystemExit) else f"{type(error).__name__}: {first}"
    if isinstance(error, LabError):
        what = first
    where = _where(error)
    return f"{where}: {what}" if where else what


def _file(path: Path) -> None:
    name = module_name(str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    # Compiled from the bytes read now: Python's cache of compiled files looks at sizes and whole seconds only.
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    sys.modules[name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[name]
        raise


def _folder(path: Path) -> None:
    # Last, so that no file next to the folder shadows an installed module.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(path.name)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path / "__init__.py":
        raise ImportError(
            f"the name '{path.name}' belongs to {spec.origin if spec else 'no module'}; rename the folder"
        )
    importlib.import_module(path.name)


def _where(error: BaseException) -> str:
    """The last line of the user's own code on the way to an error; empty where none of it ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(Path(error.filename))}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not {PACKAGE, IMPORTLIB} & set(Path(frame.filename).parents)
    ]
    if not frames:
        return ""
    first = Path(frames[0].filename)
    own = [
        frame
        for frame in frames
        if Path(frame.filename) == first
        or (first.name == "__init__.py" and first.parent in Path(frame.filename).parents)
    ]
    return f"{shown(Path(own[-1].filename))}, line {own[-1].lineno}"


def shown(path: Path) -> str:
    """Return a path as one would type it here: relative where it lies below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _neighbours(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no folder {path.parent} either."
    modules = [file.name for file in path.parent.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()]
    close = get_close_matches(path.name, sorted(modules), n=3, cutoff=0)
    return f"Nearest there: {', '.join(close)}." if close else "There is no Python file in that folder."
