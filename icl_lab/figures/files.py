"""Files of a study, its figures in every kind among them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from icl_lab.base.files import publish, staging, writing
from icl_lab.figures import paper
from icl_lab.figures.base import encode

KINDS = ("png", "svg")  # file formats of figures


def encoded(
    files: Mapping[str, str | bytes], figures: Mapping[str, Figure], kinds: Sequence[str] = KINDS
) -> dict[str, bytes]:
    """Return files and figures as bytes: a file for each kind of each figure, and for print where asked."""
    data = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    data |= {f"{name}.{kind}": encode(figure, kind) for name, figure in figures.items() for kind in kinds}
    if paper.wanted():  # last: it changes the figures
        data |= {f"{name}{paper.SUFFIX}": encode(paper.styled(each, "paper"), "pdf") for name, each in figures.items()}
    return data


def publish_folder(folder: Path, files: Mapping[str, str | bytes], figures: Mapping[str, Figure]) -> list[str]:
    """Write files and figures, and return their names in order.

    All are written to a temporary folder first and moved together, so that a full disk changes nothing. Raises
    ``RunFailed`` where the folder cannot be written.
    """
    data = encoded(files, figures)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with staging(folder, ".staged-") as staged:
            for name, content in data.items():
                publish(staged / name, content)
            for name in data:
                os.replace(staged / name, folder / name)
    return list(data)
