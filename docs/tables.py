"""Write the tables of README and docs from the docstrings, commands and stored results: ``python -m docs.tables``.

``make docs`` does so before it builds the site. A table stands between ``<!-- index NAME -->`` and ``<!-- end -->``.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import click

from docs.manual import manual
from icl_lab import analyses
from icl_lab.analyses import publish as studies
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, LabError, UnknownName
from icl_lab.base.files import publish
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.claims import experiment, headlines, ledger, paper_report
from icl_lab.claims.ledger import Finding
from icl_lab.cli import catalogue
from icl_lab.cli.main import cli
from icl_lab.comparison import rates
from icl_lab.execute.progress import Bar
from icl_lab.runs import extras, study_folder
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

BLOCK = re.compile(r"(?ms)(?P<open>^<!-- index (?P<what>\w+) -->)\n.*?(?P<close>^<!-- end -->)")
FINDINGS = Path("results/findings.md")
SOURCE = "source (arXiv)"  # column of a table
MARKS = {"sums_to_one": "Σ", "non_negative": "+", "prefix_consistent": "p", "ordered": "o"}  # of the traits
ALIBI = ("softmax ssmax:s=swap ssa", "model.positions=alibi")  # normalizers and setting of two curves
LEGEND = (
    "Learned: numbers a head, as built without options. Traits: Σ the weights of a row sum to 1, + none is negative, "
    "p a row does not change when the prompt goes on, o the order of the keys matters."
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Only say whether the pages are in step; exit 1 if not.")
def main(files: tuple[Path, ...], check: bool) -> None:
    """Write the tables of README and docs, or of the FILES named, from the docstrings, commands and stored results.

    Without FILES the texts of stored studies too, from their tables.
    """
    chosen = list(files) or pages(Path())
    try:
        stale = list(written(chosen, check))
        if not files:
            stale += reworded(Path(), check)
    except LabError as error:
        raise click.ClickException(str(error)) from None
    if stale and check:
        raise click.ClickException(f"out of step: {', '.join(stale)}; run: python -m docs.tables")
    if not stale:
        click.echo(f"{len(chosen)} pages are in step.")


def written(files: Sequence[Path], check: bool) -> Iterator[str]:
    """Write the tables of pages, unless it is a ``check``; yield the pages that were out of step.

    Raises ``BadValue`` where a page is not there or no text, or where a paragraph cites a verdict that changed.
    """
    if missing := [str(page) for page in files if not page.exists()]:
        raise BadValue(f"there is no {missing[0]} here; run this in the folder of the repository.")
    for page in counted(files, "reading pages", Bar()):
        try:
            old = page.read_text()
        except UnicodeDecodeError as error:
            raise BadValue(f"{page} is no text: {error}.") from None
        if (new := fill(old)) != old:
            yield str(page)
            if not check:
                publish(page, new.encode())
                click.echo(f"wrote {page}")
    for page in files:
        text = page.read_text()
        for sentence in ledger.stale_citations(text, recorded(Path())) if ledger.CITES.search(text) else ():
            raise BadValue(f"{page}: {sentence}; mend the paragraph.")


def reworded(root: Path, check: bool) -> Iterator[str]:
    """Write the texts of stored studies, unless it is a ``check``; yield those that were out of step."""
    for path, text in texts(root, Bar()):
        yield str(path)
        if not check:
            study_folder.reword(path, text)
            click.echo(f"wrote {path}")


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
    stored = [*(root / "results").glob(f"*/{studies.TEXT}"), *(root / "results").glob(f"experiments/*/{studies.TEXT}")]
    for path in counted(sorted(stored), "reading studies", tick):
        if (new := studies.redrawn(path.parent, specs, store)) and new != path.read_text():
            yield path, new


def parts(what: str) -> list[str]:
    """Return the table of the parts of one kind."""
    more = ["learned", "traits"] if what == "normalizers" else []
    rows = []
    for part in catalogue.parts(what, outside=False):
        formula = f"`{part.formula}`".replace("``", "")
        marks = "".join(MARKS[trait] for trait in part.traits) or catalogue.NO_TRAIT
        about = [part.learned, marks] if more else []
        rows.append([f"`{part.name}`", part.line, formula, *about, source(part.paper)])
    lines = md.table(["name", "what it is", "formula", *more, SOURCE], rows)
    return [*lines, "", LEGEND] if more else lines


def source(paper: str) -> str:
    """Return the arXiv numbers of a source, with the sections cited; a source without them unchanged."""
    return "; ".join(re.findall(r"arXiv (\d{4}\.\d{5}(?:[^;()]|\([^;]*\))*)", paper)) or paper


def _extras() -> list[str]:
    """One row an extra of the package."""
    rows = [
        [f"`{name}`", extras.PURPOSES.get(name, ""), ", ".join(f"`{package}`" for package in needs)]
        for name, needs in extras.requirements().items()
    ]
    return md.table(["extra", "for", "adds"], rows)


def _experiments(root: Path) -> list[str]:
    """One row per file of ``experiments/``: the first clause of its title, its source, and how many variants it has."""
    rows = []
    for name in experiment.names(root / "experiments"):
        one = experiment.load(name, root / "experiments")
        question = re.findall(r"(?:\S+ ){4,}?\S+?(?:\?(?= )|(?=: ))|.+", one.title)[0]  # of five words or more
        paper = re.split(r"; |:|, (?!Table|Figure|Section|Appendix)", source(one.paper))[0]
        rows.append([f"`{name}`", question, paper, str(len(one.variants))])
    return md.table(["experiment", "question", SOURCE, "variants"], rows)


@cache
def recorded(root: Path) -> list[Finding]:
    """Return every claim at every scale, as the repository's record holds it."""
    return [finding for findings in ledger.stored(_committed(root)).values() for finding in findings]


def _paper(root: Path, name: str) -> list[str]:
    """Table of the claims of one paper, each once."""
    files = root / "experiments"
    return ledger.page(paper_report.of_paper(name, files, recorded(root)))


def _curves(root: Path, task: str, attns: str, *settings: str) -> list[str]:
    """Table of the stored learning-rate curves of some normalizers on one task at ``nano``."""
    store = _committed(root)
    specs = {attn: resolve(task, attn, "nano", settings) for attn in attns.split()}
    return rates.table({name: curve for name, spec in specs.items() if (curve := rates.stored(spec, store))})


def _far_over_rates(root: Path) -> list[str]:
    """Errors on ``linear`` at ``nano`` far from training, over softmax's at the same rate, and at own rates."""
    words = {(each.experiment, each.claim): each.interval for each in recorded(root) if each.preset == "nano"}
    own = {"ssa": "SSA errs less than", "lssa": "LSSA errs less than", "entmax": "Entmax does not help"}
    rows = []
    for name in ("ssa", "lssa", "ssmax", "entmax"):
        shared = [f"{name} errs as softmax far out{rate}" for rate in (", half the rate", "", ", twice the rate")]
        cells = [words["recipe-rates", statement] for statement in shared]
        tuned = f"At own rates {own[name]} softmax far from training" if name in own else ""
        rows.append([f"`{name}`", *cells, words.get(("table1-own-rates", tuned)) or "—"])
    return md.table(["over softmax, far from training", "half the rate", "the preset's", "twice", "own rates"], rows)


# What may stand between marks, and who writes it.
BLOCKS: Mapping[str, Callable[[Path], Sequence[str]]] = {
    "tasks": lambda root: parts("tasks"),
    "normalizers": lambda root: parts("normalizers"),
    "positions": lambda root: parts("positions"),
    "presets": lambda root: catalogue.presets(),
    "extras": lambda root: _extras(),
    "commands": lambda root: manual(cli, "icl-lab"),
    "experiments": _experiments,
    "analyses": lambda root: _analyses(),
    "curves_linear": partial(_curves, task="linear", attns="softmax ssa lssa entmax sparsemax cosformer"),
    "curves_every": lambda root: _curves(root, "every:balance=half", *ALIBI),
    "curves_needle": lambda root: _curves(root, "needle", *ALIBI),
    "rates_far": _far_over_rates,
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


if __name__ == "__main__":
    main()
