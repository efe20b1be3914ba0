"""The script of the live page, from its files beside this one."""

import re
from functools import cache
from pathlib import Path

ENGINE = ("tensors", "positions", "rows", "rules", "choice", "forward")
CONTROLS = ("state", "prompt", "answers", "controls")
FOLDER = Path(__file__).parent


@cache
def engine() -> str:
    """Returns the forward pass as one constant ``engine``: its names meet none of the page's."""
    inside = "\n".join(_file(name) for name in ENGINE)
    return (
        f"const engine = (() => {{\n{inside}\nreturn {{ opened, forward, ruleOf, Refused, RULES, WRAPPERS }};\n}})();\n"
    )


@cache
def controls() -> str:
    """Returns the controls, in a block of their own; they read and change the names of attention.js."""
    inside = "\n".join(_file(name) for name in CONTROLS)
    return f"{{\n{inside}\n}}\n"


@cache
def names(kind: str = "rule") -> frozenset[str]:
    """Returns the rules, or the wrappers (``kind="wrapper"``), of which rules.js has the formula."""
    return frozenset(re.findall(rf'^{kind}\("([\w-]+)"', _file("rules"), re.MULTILINE))


def _file(name: str) -> str:
    return (FOLDER / f"{name}.js").read_text(encoding="utf-8")
