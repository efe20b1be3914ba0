"""The attention page computes: it holds graphs of its models and lets a reader change their input and normalizers.

The script is split by ideas: ``engine`` runs graphs and needs no page (it runs under Node as well); ``controls`` is
what a reader sees of it.
"""

from functools import cache
from pathlib import Path

from icl_lab.analyses.attention.live.export import Exported as Exported
from icl_lab.analyses.attention.live.export import LayerGraphs as LayerGraphs
from icl_lab.analyses.attention.live.export import export_model as export_model
from icl_lab.analyses.attention.live.export import export_normalizer as export_normalizer
from icl_lab.analyses.attention.live.graph import NotExportable as NotExportable
from icl_lab.analyses.attention.live.graph import OperatorGraph as OperatorGraph

ENGINE = ("interpreter", "model")
CONTROLS = ("state", "prompt", "answers", "controls")
FOLDER = Path(__file__).parent


@cache
def engine() -> str:
    """Return the forward pass as one constant ``engine``: its names meet none of the page's."""
    names = "opened, run, make, model, forward, Refused, OPERATORS"
    return f"const engine = (() => {{\n{_files(ENGINE)}\nreturn {{ {names} }};\n}})();\n"


@cache
def controls() -> str:
    """Return the controls, in their own block; they read and change the names of attention.js."""
    return f"{{\n{_files(CONTROLS)}\n}}\n"


def _files(names: tuple[str, ...]) -> str:
    return "\n".join((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names)
