"""Generated tables of README, docs and ``list``, read from the parts themselves."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from icl_lab import analyses, normalizers, tasks
from icl_lab import markdown as md
from icl_lab.cli.manual import manual
from icl_lab.errors import UnknownName
from icl_lab.evidence.archive import Archive
from icl_lab.model import positions
from icl_lab.normalizers.base import Normalizer
from icl_lab.papers import arms, experiment, headlines, ledger, paper_report, record
from icl_lab.papers.ledger import Row
from icl_lab.parts.registry import Registry
from icl_lab.runs import extras
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

FINDINGS = Path("results/findings.md")
KINDS: dict[str, list[Registry]] = {
    "tasks": [tasks.registry],
    "normalizers": [normalizers.registry, normalizers.wrappers],
    "positions": [positions.registry],
}
HEADS = 8  # of the normalizers whose parameters are counted
# Traits in words, and as marks: a column of a table has no room for words.
TRAITS = {
    "sums_to_one": ("sums to 1", "Σ"),
    "non_negative": ("never negative", "+"),
    "prefix_consistent": ("prefix-consistent", "p"),
    "ordered": ("ordered", "o"),
}
LEGEND = (
    "Learned: numbers a head, as built without options. Traits: Σ the weights of a row sum to 1, + none is negative, "
    "p a row does not change when the prompt goes on, o the order of the keys matters."
)


def names(what: str) -> list[str]:
    """Returns the names of the parts of one kind, or of the presets."""
    return list(PRESETS) if what == "presets" else [name for registry in KINDS[what] for name in registry.names()]


def listing(what: str) -> Iterable[str]:
    """Yields lines for the terminal. ``what`` is ``tasks``, ``normalizers``, ``positions`` or ``presets``."""
    if what == "presets":
        for name, preset in PRESETS.items():
            model, train = preset.model, preset.train
            size = f"{model.layers} layers, {model.heads} heads, width {model.width}"
            work = f"{train.steps:,} steps of {train.batch}"
            yield f"{name:8} {size + ', ' + work:56} {preset.purpose}"
        return
    for registry in KINDS[what]:
        for entry in registry.entries():
            yield f"{entry.name}{_options(registry, entry.name)}"
            yield f"    {entry.line}"
            if entry.formula:
                yield f"    {entry.formula}"
            if what == "normalizers":
                rule = _rule(registry, entry.name)
                yield f"    learned a head: {_learned(rule)}; {', '.join(_traits(rule, 0))}"
            yield f"    {entry.paper}"


def pages(root: Path) -> list[Path]:
    """Returns the files that hold index marks: the findings, the README, which shows their head, and ``docs/``."""
    docs = root / "docs"
    return [root / FINDINGS, root / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "papers").glob("*.md"))]


def fill(text: str, root: Path = Path()) -> str:
    """Returns a page with the lines between each pair of index marks written anew.

    ``root`` is the repository: claims are judged from its ``results`` and ``experiments``. Raises ``UnknownName`` on a
    mark that asks for what is not there.
    """

    def write(match: re.Match[str]) -> str:
        if match["what"] not in BLOCKS:
            raise UnknownName("index", match["what"], BLOCKS)
        return "\n".join([match["open"], *BLOCKS[match["what"]](root), match["close"]])

    return re.sub(r"(?P<open><!-- index (?P<what>\w+) -->)\n.*?(?P<close><!-- end -->)", write, text, flags=re.DOTALL)


def _parts(what: str) -> list[str]:
    """The table of the parts of one kind."""
    more = ["learned", "traits"] if what == "normalizers" else []
    rows = []
    for registry in KINDS[what]:
        for entry in registry.entries(outside=False):
            name, formula = f"`{entry.name}{_options(registry, entry.name)}`", f"`{entry.formula}`".replace("``", "")
            rule = _rule(registry, entry.name) if more else None
            about = [_learned(rule), " ".join(_traits(rule, 1))] if rule else []
            rows.append([name, entry.line, formula, *about, entry.paper])
    lines = md.table(["name", "what it is", "formula", *more, "source"], rows)
    return [*lines, "", LEGEND] if more else lines


def _presets() -> list[str]:
    rows = []
    for name, p in PRESETS.items():
        size, work = f"{p.model.layers}, {p.model.heads}, {p.model.width}", f"{p.train.steps:,} x {p.train.batch}"
        rows.append([f"`{name}`", size, work, p.purpose])
    return md.table(["preset", "layers, heads, width", "steps x batch", "for"], rows)


def _extras() -> list[str]:
    """One row an extra of the package."""
    rows = [
        [f"`{name}`", extras.PURPOSES.get(name, ""), ", ".join(f"`{each}`" for each in needs)]
        for name, needs in extras.requirements().items()
    ]
    return md.table(["extra", "for", "adds"], rows)


def _experiments(root: Path) -> list[str]:
    """One row a file of ``experiments/``."""
    rows = []
    for name in experiment.names(root / "experiments"):
        one = experiment.load(name, root / "experiments")
        rows.append([f"`{name}`", one.title, f"`{one.task}`", one.analysis, str(len(one.claims)), one.paper])
    return md.table(["experiment", "what it asks", "task", "analysis", "claims", "source"], rows)


def _commands(root: Path) -> list[str]:
    from icl_lab.cli.main import cli  # the group imports the commands, one of which writes these pages

    return manual(cli, "icl-lab")


@cache
def recorded(root: Path) -> list[Row]:
    """Returns every claim at every scale, as the repository's record holds it."""
    return [row for rows in record.stored(_committed(root)).values() for row in rows]


def _paper(root: Path, name: str) -> list[str]:
    """Table of the claims of one paper, each once."""
    files = root / "experiments"
    rows = paper_report.of_paper(name, files, recorded(root))
    return [f"{ledger.tally_of(rows)}.", "", *ledger.table(rows)]


# What may stand between marks, and who writes it.
BLOCKS: Mapping[str, Callable[[Path], Sequence[str]]] = {
    "tasks": lambda root: _parts("tasks"),
    "normalizers": lambda root: _parts("normalizers"),
    "positions": lambda root: _parts("positions"),
    "presets": lambda root: _presets(),
    "extras": lambda root: _extras(),
    "commands": _commands,
    "experiments": _experiments,
    "analyses": lambda root: _analyses(),
    "findings": lambda root: ledger.table(headlines.chosen(recorded(root))[:6], "experiments"),
    "arms": lambda root: arms.table(root / "experiments", _committed(root)),
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
    return md.table(["analysis", "what it does", "its own options"], rows)


def _committed(root: Path) -> Store:
    """The repository's evidence and studies, whatever runs of his own a user has beside them."""
    return Store(root / "results" / "runs-of-nobody", Archive(root / "results" / "evidence"))


def _options(registry: Registry, name: str) -> str:
    options = registry.options(name)
    return ":" + ",".join(options) if options else ""


def _rule(registry: Registry, name: str) -> Normalizer:
    """Builds a normalizer without options; a wrapper stands around softmax."""
    choice = f"softmax+{name}" if registry is normalizers.wrappers else name
    return normalizers.build(choice, heads=HEADS, head_dim=32, train_tokens=82)


def _learned(rule: Normalizer) -> str:
    """Number of parameters that a head learns, and that all layers learn together."""
    sizes = {name: p.numel() for name, p in rule.named_parameters() if p.requires_grad}
    together = sum(size for name, size in sizes.items() if name in rule.shared)
    alone = (sum(sizes.values()) - together) / HEADS
    return f"{alone:g}" + (f", and {together} shared by all layers" if together else "")


def _traits(rule: Normalizer, which: int) -> list[str]:
    """The traits of a normalizer in words (0) or as marks (1)."""
    return [words[which] for trait, words in TRAITS.items() if getattr(rule, trait)] or ["none of the traits"]
