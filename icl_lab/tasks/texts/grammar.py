"""Simple English from a small grammar: a text to train on, and minimal pairs of a grammatical and another sentence.

``grammar.toml`` holds words, rules and pairs. A mark such as ``<thing.sg>`` is a word in a form, or a rule, in which
``#``, or ``&`` of a gender, is then that form. Where they are open, ``#`` and ``@`` are a number and ``&`` a gender,
one for the whole line; ``!`` before them is the other one. Marks of a line that are called alike are the same word
(``thing``, ``thing2``).
"""

import random
import re
import tomllib
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate, islice

from icl_lab.base.errors import BadValue

SENTENCES = 40_000  # of the text
POWER = (
    3.0  # of words in the text: of a hundred the first is a fifth of them, the last one in 300, as words are in talk
)
TRIES = 20  # draws for each pair that is asked for: more would find no others
END = "\n"  # of a sentence, a separate word
MASK = "<mask>"
MARK = re.compile(r"<(([a-z]+)\d?)(?:\.(!?)([#@&]|\w+))?>")
OPEN = {"#": ("sg", "pl"), "@": ("sg", "pl"), "&": ("f", "m")}

Word = Mapping[str, str]  # a form -> how it is written; "" where there is one only
Part = tuple[str, str, str, str] | str  # name, kind, "!" or nothing, form; or a word as it stands
Line = Sequence[Part]


@dataclass
class Draw:
    """Draws of one line: the forms of its open marks, and its words by their names."""

    rng: random.Random
    power: float = 1.0  # of a uniform number: above 1 the first words of a list are drawn more often than the last
    forms: dict[str, str] = field(default_factory=dict)
    words: dict[str, Word] = field(default_factory=dict)

    def one(self, count: int, power: float = 1.0) -> int:
        """Return a whole number below ``count``; ``random()`` alone is the same on every version of Python."""
        return int(self.rng.random() ** power * count)

    def form(self, mark: str, other: str) -> str:
        """Return the form of a mark, or the other one of it."""
        if mark not in OPEN:
            return mark
        if mark not in self.forms:
            self.forms[mark] = OPEN[mark][self.one(2)]
        form = self.forms[mark]
        return OPEN[mark][form == OPEN[mark][0]] if other else form

    def word(self, name: str, words: Sequence[Word]) -> Word:
        """Return the word of a name, none that another name of the line has."""
        while name not in self.words:
            drawn = words[self.one(len(words), self.power)]
            if all(drawn is not word for word in self.words.values()):
                self.words[name] = drawn
        return self.words[name]


class Grammar:
    """Words, rules and pairs as a file holds them."""

    def __init__(self, text: str) -> None:
        told = tomllib.loads(text)
        lists = {
            part: {kind: words.split() for kind, words in told[part].items()} for part in ("nouns", "verbs", "words")
        }
        self.words: dict[str, list[Word]] = {
            **{kind: [*map(_noun, words)] for kind, words in lists["nouns"].items()},
            **{kind: [*map(_verb, words)] for kind, words in lists["verbs"].items()},
            **{kind: [{"": word} for word in words] for kind, words in lists["words"].items()},
            **told["forms"],
        }
        self.rules = {
            kind: [_rule(line) for line in lines.strip().split("\n")] for kind, lines in told["rules"].items()
        }
        self.pairs = {name: [[_line(side) for side in both] for both in pairs] for name, pairs in told["pairs"].items()}
        self._weights: dict[tuple[str, str], list[float]] = {}

    @property
    def vocabulary(self) -> list[str]:
        """Every word that a sentence may hold, and its end."""
        lines = [line for rule in self.rules.values() for *_, line in rule]
        lines += [line for pairs in self.pairs.values() for both in pairs for line in both]
        written = [part for line in lines for part in line if isinstance(part, str)]
        written += [form for words in self.words.values() for word in words for form in word.values()]
        return [END, *sorted({word for text in written for word in text.split()})]

    def sentences(self, seed: str) -> Iterator[str]:
        """Yield sentences without end, the same for a seed."""
        rng = random.Random(seed)
        while True:
            yield " ".join(self._written("sentence", "", rng))

    def drawn_pairs(self, paradigm: str, seed: str) -> Iterator[tuple[str, str]]:
        """Yield pairs of a paradigm without end, an ungrammatical sentence and the grammatical one."""
        rng, lines = random.Random(seed), self.pairs[paradigm]
        while True:
            draw = Draw(rng)
            good, bad = (" ".join(self._filled(line, draw)) for line in lines[draw.one(len(lines))])
            yield bad, good

    def _written(self, kind: str, form: str, rng: random.Random) -> list[str]:
        """The words of a rule in a form."""
        rule = self.rules[kind]
        if (kind, form) not in self._weights:
            self._weights[kind, form] = list(accumulate(weight * (only in ("", form)) for weight, only, _ in rule))
        weights = self._weights[kind, form]
        line = rule[bisect(weights, rng.random() * weights[-1])][2]
        return self._filled(line, Draw(rng, POWER, {"&" if form in OPEN["&"] else "#": form} if form else {}))

    def _filled(self, line: Line, draw: Draw) -> list[str]:
        found: list[str] = []
        for part in line:
            if isinstance(part, str):
                found.append(part)
                continue
            name, kind, other, mark = part
            form = draw.form(mark, other)
            if kind in self.rules:
                found += self._written(kind, form, draw.rng)
            else:
                found.append(draw.word(name, self.words[kind])[form])
        return found


def _noun(text: str) -> Word:
    """Singular and plural of ``dog`` or ``mouse/mice``."""
    singular, _, plural = text.partition("/")
    return {"sg": singular, "pl": plural or f"{singular}s"}


def _verb(text: str) -> Word:
    """The forms of ``walk`` or ``take/took/taken/taking``; forms left out are regular."""
    base, *told = text.split("/")
    past, part, ing = (*told, *(f"{base}ed", told[0] if told else f"{base}ed", f"{base}ing")[len(told) :])
    third = (
        f"{base[:-1]}ies" if re.search("[^aeiou]y$", base) else base + "es" * bool(re.search("(s|sh|ch|x|o)$", base))
    )
    return {
        "base": base,
        "pl": base,
        "sg": third if third != base else f"{base}s",
        "past": past,
        "part": part,
        "ing": ing,
    }


def _rule(line: str) -> tuple[float, str, Line]:
    """Weight, the one form that it is for, and the words of ``2:sg <name.&>``."""
    head, _, words = line.partition(" ")
    weight, _, only = head.partition(":")
    return float(weight), only, _line(words)


def _line(words: str) -> Line:
    found: list[Part] = []
    for word in words.split():
        mark = MARK.fullmatch(word)
        found.append((mark[1], mark[2], mark[3] or "", mark[4] or "") if mark else word)
    return found


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """Return the grammar, read once a process."""
    return Grammar((files(__package__) / "grammar.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def text() -> str:
    """Return the text, one sentence per line; the same everywhere."""
    drawn = grammar().sentences("text")
    return "".join(next(drawn) + END for _ in range(SENTENCES))


def pairs(paradigm: str, count: int) -> list[tuple[str, str]]:
    """Return different pairs of a paradigm, the ungrammatical sentence first; neither is in the text.

    More pairs begin with those of fewer. Raises ``BadValue`` where there are fewer than ``count``.
    """
    seen, found = frozenset(text().splitlines()), dict[tuple[str, str], None]()
    for pair in islice(grammar().drawn_pairs(paradigm, paradigm), TRIES * count):
        if seen.isdisjoint(pair):
            found[pair] = None
        if len(found) == count:
            return [*found]
    raise BadValue(f"the grammar has {len(found):,} pairs of {paradigm}, fewer than {count:,}.")


class Words:
    """The words of the grammar as a tokenizer, with those methods of the package tokenizers that a corpus calls."""

    def __init__(self) -> None:
        self.names = [*grammar().vocabulary, MASK]
        self._ids = {word: number for number, word in enumerate(self.names)}

    def token_to_id(self, word: str) -> int | None:
        """Return the number of a word, None of one that the grammar does not have."""
        return self._ids.get(word)

    def ids(self, text: str) -> list[int] | None:
        """Return the number of each word and of each end of a line; None where the grammar lacks a word."""
        words = [text[start:end] for start, end in self.spans(text)]
        return [self._ids[word] for word in words] if self._ids.keys() >= set(words) else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters, from and up to, of each word and of each end of a line."""
        return [word.span() for word in re.finditer(r"\S+|\n", text)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        return re.sub(f" ?{END} ?", END, " ".join(self.names[number] for number in ids))
