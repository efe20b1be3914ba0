"""Generated tables of README and docs, read from the parts themselves."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from icl_lab import analyses
from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.base.errors import UnknownName
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.claims import experiment, headlines, ledger, paper_report
from icl_lab.claims.ledger import Finding
from icl_lab.cli import catalogue
from icl_lab.cli.manual import manual
from icl_lab.runs import extras
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

BLOCK = re.compile(r"(?ms)(?P<open>^<!-- index (?P<what>\w+) -->)\n.*?(?P<close>^<!-- end -->)")
FINDINGS = Path("results/findings.md")


def pages(root: Path) -> list[Path]:
    """Return the files that hold index marks: the findings, the README, which shows their head, and ``docs/``."""
    docs = root / "docs"
    return [root / FINDINGS, root / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "papers").glob("*.md"))]


def fill(text: str, root: Path = Path()) -> str:
    """Return a page with the lines between each pair of index marks written anew.

    ``root`` is the repository: claims are judged from its ``results`` and ``experiments``. Raises ``UnknownName`` on an
    unknown mark.
    """

    def write(match: re.Match[str]) -> str:
        if match["what"] not in BLOCKS:
            raise UnknownName("index", match["what"], BLOCKS)
        return "\n".join([match["open"], *BLOCKS[match["what"]](root), match["close"]])

    return BLOCK.sub(write, text)


def texts(root: Path, tick: Tick = silent) -> Iterator[tuple[Path, str]]:
    """Yield each text of a stored study that its analysis writes otherwise now, with the new words."""
    store = _committed(root)
    specs = {run.spec.hash: run.spec for run in store.runs()}
    found = [*(root / "results").glob(f"*/{publish.TEXT}"), *(root / "results").glob(f"experiments/*/{publish.TEXT}")]
    for path in counted(sorted(found), "reading studies", tick):
        if (new := publish.redrawn(path.parent, specs, store)) and new != path.read_text():
            yield path, new


def _extras() -> list[str]:
    """One row an extra of the package."""
    rows = [
        [f"`{name}`", extras.PURPOSES.get(name, ""), ", ".join(f"`{each}`" for each in needs)]
        for name, needs in extras.requirements().items()
    ]
    return md.table(["extra", "for", "adds"], rows)


def _experiments(root: Path) -> list[str]:
    """One row per file of ``experiments/``: the first clause of its title, its source, and how many variants it has."""
    rows = []
    for name in experiment.names(root / "experiments"):
        one = experiment.load(name, root / "experiments")
        question = re.findall(r"(?:\S+ ){4,}?\S+?(?:\?(?= )|(?=: ))|.+", one.title)[0]  # of five words or more
        source = re.split(r"; |:|, (?!Table|Figure|Section|Appendix)", catalogue.source(one.paper))[0]
        rows.append([f"`{name}`", question, source, str(len(one.variants))])
    return md.table(["experiment", "question", catalogue.SOURCE, "variants"], rows)


def _commands(root: Path) -> list[str]:
    from icl_lab.cli.main import cli  # the group imports the commands, one of which writes these pages

    return manual(cli, "icl-lab")


@cache
def recorded(root: Path) -> list[Finding]:
    """Return every claim at every scale, as the repository's record holds it."""
    return [each for found in ledger.stored(_committed(root)).values() for each in found]


def _paper(root: Path, name: str) -> list[str]:
    """Table of the claims of one paper, each once."""
    files = root / "experiments"
    return ledger.page(paper_report.of_paper(name, files, recorded(root)))


# What may stand between marks, and who writes it.
BLOCKS: Mapping[str, Callable[[Path], Sequence[str]]] = {
    "tasks": lambda root: catalogue.parts("tasks"),
    "normalizers": lambda root: catalogue.parts("normalizers"),
    "positions": lambda root: catalogue.parts("positions"),
    "presets": lambda root: catalogue.presets(),
    "extras": lambda root: _extras(),
    "commands": _commands,
    "experiments": _experiments,
    "analyses": lambda root: _analyses(),
    "findings": lambda root: ledger.table(headlines.chosen(recorded(root))[:6], "experiments"),
    "headlines": lambda root: ledger.table(headlines.chosen(recorded(root)), "../experiments"),
    **{f"paper_{name}": partial(_paper, name=name) for name in ledger.PAPERS},
}


def _analyses() -> list[str]:
    """Every analysis of the package with its question and its own options."""
    rows = []
    for name in analyses.names():
        if analyses.registry.source(name) is None:
            part = analyses.registry.part(name)
            options = ", ".join(f"`--{field.name}`" for field in dataclasses.fields(part))
            rows.append([f"`{name}`", (part.__doc__ or "").partition("\n")[0], options])
    return md.table(["analysis", "what it does", "options"], rows)


def _committed(root: Path) -> Store:
    """The repository's evidence and studies, without runs of the user."""
    return Store(root / "results" / "runs-of-nobody", Archive(root / "results" / "evidence"))
