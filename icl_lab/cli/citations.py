"""The papers of a normalizer or a task as BibTeX, from the sources that its docstring names."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ITSELF = """@misc{icl_lab,
  title = {icl_lab: a synthetic in-context-learning laboratory for attention normalizers},
  author = {{the icl_lab authors}},
  note = {version %s}
}"""
ALONE = ("Nakanishi", "Gros")  # named by a surname; other single words are the name of a method


@dataclass(frozen=True)
class Citation:
    """A paper as it is named in a docstring: authors or a short title, the year and the arXiv number."""

    words: str
    year: str
    arxiv: str

    @property
    def bibtex(self) -> str:
        """A BibTeX entry with the known fields: authors where they are named, else the title.

        >>> print(Citation("Naim et al.", "2025", "2508.14685").bibtex.splitlines()[1].strip())
        author = {Naim and others},
        """
        named = re.sub(r" et al\.$", " and others", self.words).replace(" & ", " and ").replace(", ", " and ")
        people = self.words in ALONE or named != self.words
        field = f"author = {{{named}}}" if people else f"title = {{{self.words}}}"
        return (
            f"@misc{{arxiv{self.arxiv},\n  {field},\n  year = {{{self.year}}},\n  eprint = {{{self.arxiv}}},\n"
            f"  archivePrefix = {{arXiv}},\n  url = {{https://arxiv.org/abs/{self.arxiv}}}\n}}"
        )


def papers(text: str) -> Iterator[Citation]:
    """Yield the papers with an arXiv number that a source names.

    >>> [(paper.words, paper.arxiv) for paper in papers("Naim et al. 2025, arXiv 2508.14685, Eq. 2; Softpick")]
    [('Naim et al.', '2508.14685')]
    """
    for part in re.split(r"; ", text):
        if found := re.search(r"(\d{4}), arXiv (\d{4}\.\d{5})", part):
            words = re.sub(r"^(after|none|the)\b.*\bof ", "", part[: found.start()]).removeprefix("after ").strip(" (,")
            yield Citation(words, found[1], found[2])


def of(sources: Iterable[str]) -> list[Citation]:
    """Return the papers that the sources of parts name, each once."""
    found: dict[str, Citation] = {}
    for source in sources:
        for paper in papers(source):
            found.setdefault(paper.arxiv, paper)
    return list(found.values())
