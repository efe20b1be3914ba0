"""The script of the live page, from its files beside this one."""

from functools import cache
from pathlib import Path

ENGINE = ("interpreter", "model")
CONTROLS = ("state", "prompt", "answers", "controls")
FOLDER = Path(__file__).parent


@cache
def engine() -> str:
    """Returns the forward pass as one constant ``engine``: its names meet none of the page's."""
    names = "opened, run, make, model, forward, Refused, OPERATORS"
    return f"const engine = (() => {{\n{_files(ENGINE)}\nreturn {{ {names} }};\n}})();\n"


@cache
def controls() -> str:
    """Returns the controls, in a block of their own; they read and change the names of attention.js."""
    return f"{{\n{_files(CONTROLS)}\n}}\n"


def _files(names: tuple[str, ...]) -> str:
    return "\n".join((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names)
