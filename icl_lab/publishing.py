"""The folder of an analysis: its numbers and tables as text, its figures in every kind."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from icl_lab.console import write
from icl_lab.figures.base import encode

KINDS = ("png", "svg")  # what figures are published as


def publish(
    folder: Path,
    files: Mapping[str, str | bytes],
    figures: Mapping[str, Figure],
    kinds: Sequence[str] = KINDS,
) -> list[str]:
    """Writes files and figures, each whole or not at all; returns their names in order."""
    data = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    data |= {f"{name}.{kind}": encode(figure, kind) for name, figure in figures.items() for kind in kinds}
    for name, content in data.items():
        write(folder / name, content)
    return list(data)
