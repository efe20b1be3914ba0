"""One paper's claims as a document: Markdown and LaTeX with the same numbers, and a figure of all effects.

The numbers are those of the paper's page in the documentation (``docs/papers``): each claim once, at the largest scale
that decides it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from icl_lab.base import markdown as md
from icl_lab.base import tables
from icl_lab.base.errors import RunFailed, UnknownName
from icl_lab.base.grid import frame_of
from icl_lab.base.progress import Tick, silent
from icl_lab.base.version import VERSION
from icl_lab.claims import experiment as experiments
from icl_lab.claims import ledger, record
from icl_lab.claims.ledger import Finding
from icl_lab.figures import claims as pictures
from icl_lab.figures.base import encode
from icl_lab.figures.paper import WIDTHS
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

FIGURE = 16  # claims: a figure of more does not fit a page
COLUMNS = "rp{4.6cm}rp{2.6cm}lp{2.4cm}lp{2.2cm}"  # of the table in LaTeX, which breaks long cells
AXIS = (
    "left against right, in units of the margin of no difference (grey); below 0: less on the left side. "
    "Ratios by their logarithm"
)
READING = (
    "A ratio where errors span decades, else a difference, of the first named to the second: below is less "
    "error on the left. Direction: the side on which the whole interval lies. Size: against the printed effect, or "
    "against the margin of no difference where none is printed. Intervals hold at 95 % however often seeds are added. "
    "Not learned: a side errs in training conditions at least a quarter as much as an answer that reads no example."
)
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=2cm]{geometry}
\usepackage{array,booktabs,longtable,graphicx,textcomp}
\begin{document}
"""


def of_paper(paper: str, files: Path, findings: Sequence[Finding]) -> list[Finding]:
    """Return those on the claims of one paper, each once; raises ``UnknownName`` with the papers."""
    check_paper(paper)
    chosen = {
        name for name in experiments.names(files) if ledger.paper_of(experiments.load(name, files).paper) == paper
    }
    return [each for each in ledger.strongest(findings) if each.experiment in chosen]


def check_paper(paper: str) -> None:
    """Raise ``UnknownName`` with the papers where none has this name."""
    if paper not in ledger.PAPERS:
        raise UnknownName("paper", paper, ledger.PAPERS)


def written(paper: str, files: Path, store: Store, tick: Tick = silent) -> Mapping[str, bytes]:
    """Return the files of a report by name: ``report.md``, ``report.tex`` and the figures that they show.

    Trains nothing. Raises ``UnknownName`` for an unknown paper, and ``RunFailed`` where no claim of it has a run.
    """
    check_paper(paper)  # before what takes long
    rows = of_paper(paper, files, record.everything(files, store, PRESETS, tick)[0])
    if not rows:
        raise RunFailed(f"no run of an experiment of '{paper}' is stored: there is nothing to report.")
    prose = paragraphs(paper, files)
    parts = [rows[at : at + FIGURE] for at in range(0, len(rows), FIGURE)]
    drawn = {f"claims-{number}": _forest(part, FIGURE * (number - 1)) for number, part in enumerate(parts, 1)}
    found = {f"{name}.{kind}": encode(figure, kind) for name, figure in drawn.items() for kind in ("png", "pdf")}
    return found | {
        "report.md": markdown(paper, rows, list(drawn), prose).encode(),
        "report.tex": latex(paper, rows, list(drawn), prose).encode(),
    }


def paragraphs(paper: str, files: Path) -> list[str]:
    """Return the text of the paper's page, a paragraph each, with links as plain words; none without a checkout.

    It ends where the page's table begins.
    """
    page = files.parent / "docs" / "papers" / f"{paper}.md"
    if not page.exists():
        return []
    text = page.read_text(encoding="utf-8").partition("\nEach claim once")[0]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    found = (" ".join(part.split()) for part in text.split("\n\n"))
    return [part for part in found if part and not part.startswith("#")]


def markdown(paper: str, rows: Sequence[Finding], figures: Sequence[str], prose: Sequence[str] = ()) -> str:
    """Return the report as Markdown, with its figures as PNG."""
    head, *lines = _table(rows)
    text = [f"# {ledger.PAPERS[paper].title}", ""]
    text += [line for part in (*prose, f"{ledger.tally(rows)}.") for line in (part, "")]
    text += [f"![Claims, ours and printed, {number}]({name}.png)\n" for number, name in enumerate(figures, 1)]
    text += [*md.head(head), *map(md.row, lines), "", READING, "", f"Made by {md.code(_command(paper))}, {_version()}."]
    return "\n".join([*text, ""])


def latex(paper: str, rows: Sequence[Finding], figures: Sequence[str], prose: Sequence[str] = ()) -> str:
    """Return the report as a whole article in LaTeX, with its figures as PDF."""
    head, *lines = _table(rows)
    frame = frame_of([dict(zip(head, line, strict=True)) for line in lines], columns=head)
    body = tables.latex(frame, columns=COLUMNS, long=True)
    shown = [rf"\noindent\includegraphics[width=\linewidth,height=.92\textheight,keepaspectratio]{{{name}.pdf}}"
             for name in figures]  # fmt: skip
    text = [
        PREAMBLE + rf"\section*{{{tables.in_latex(ledger.PAPERS[paper].title)}}}",
        *(f"{_bold(part)}\n" for part in prose),
        tables.in_latex(f"{ledger.tally(rows)}."),
        "",
    ]
    text += [r"{\footnotesize\raggedright", body + "}", tables.in_latex(READING), "", "\n\n".join(shown), ""]
    made = f"Made by {md.code(_command(paper))}, {_version()}."
    return "\n".join([*text, tables.in_latex(made), r"\end{document}", ""])


def _bold(part: str) -> str:
    """A paragraph as LaTeX, with what stands between two pairs of stars in bold."""
    pieces = enumerate(part.split("**"))
    return "".join(rf"\textbf{{{tables.in_latex(p)}}}" if n % 2 else tables.in_latex(p) for n, p in pieces)


def _table(rows: Sequence[Finding]) -> list[list[str]]:
    """The head and the rows of the documentation's table, numbered as in the figure."""
    head, _, *lines = [md.cells(line) for line in ledger.table(rows)]
    return [["", *head], *([str(number), *line] for number, line in enumerate(lines, 1))]


def _forest(findings: Sequence[Finding], before: int) -> Figure:
    """Effects in units of the margin of each claim, numbered on from ``before``."""
    rows = [(each.effect, each.low, each.high, each.printed) for each in findings]
    values = np.array(rows) / np.array([[each.margin] for each in findings])
    labels = [f"{number}  {each.claim}" for number, each in enumerate(findings, before + 1)]
    return pictures.forest(labels, values, [each.judged for each in findings], label=AXIS, width=WIDTHS[2])


def _command(paper: str) -> str:
    return f"icl-lab paper-report {paper}"


def _version() -> str:
    return f"icl_lab {VERSION}"
