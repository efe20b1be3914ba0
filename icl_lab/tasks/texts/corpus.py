"""A text as whole numbers, and which parts of it are held out.

The text is cut into ``PARTS`` equal parts; every ``EACH``-th is held out, the others are for training. Parts are
contiguous, no window crosses from one kind into the other, and a tokenizer reads each part by itself: no token of a
held-out part has been seen in training, and none depends on text of the other kind.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue
from icl_lab.tasks.texts import grammar

PARTS, EACH = 64, 8
MOST = 2**30  # bytes of a file: the tokens are held in memory
GRAMMAR = "grammar"  # in the place of a file
MASKS = ("[MASK]", "<mask>")  # of BERT and of RoBERTa
BUILT_IN = "pydoc_data.topics"  # 79 help texts that come with Python, about 465,000 characters


@dataclass(frozen=True)
class Corpus:
    """The tokens of the training spans and of the held-out parts, and what a token is.

    ``spans`` are tensors of whole numbers, in the order of the text; ``spelled`` turns tokens back into text.
    """

    name: str
    sha: str  # SHA-256 of the text, and of the tokenizer's file where there is one
    vocabulary: int
    training: tuple[Tensor, ...]
    held_out: tuple[Tensor, ...]
    held_out_bytes: int
    tokenizer: Any = None

    def spans(self, part: str) -> tuple[Tensor, ...]:
        """Return the spans of ``train`` or ``held-out``."""
        return self.training if part == "train" else self.held_out

    @property
    def longest_window(self) -> int:
        """The tokens of the longest window, its last target left out, that both kinds of span have."""
        return min(max(map(len, self.training)), max(map(len, self.held_out))) - 1

    @property
    def bytes_a_token(self) -> float:
        """The mean over the held-out parts; 1 where tokens are bytes."""
        return self.held_out_bytes / sum(map(len, self.held_out))

    @property
    def mask(self) -> int:
        """The token that hides another: one more than there are bytes, or that of the tokenizer.

        Raises ``BadValue`` where the tokenizer has none.
        """
        if self.tokenizer is None:
            return self.vocabulary
        found = (self.tokenizer.token_to_id(name) for name in MASKS)
        mask = next((token for token in found if token is not None), None)
        if mask is None:
            raise BadValue(f"the tokenizer of {self.name} has no mask token: none is called {' or '.join(MASKS)}.")
        return int(mask)

    @cached_property
    def everything_seen(self) -> Tensor:
        """The tokens of all training spans in a row, (n)."""
        return torch.cat(self.training)

    def windows(self, part: str, rng: torch.Generator, count: int, length: int) -> Tensor:
        """Draw ``count`` windows of ``length`` + 1 tokens, each as likely as any other, (count, length + 1).

        Raises ``BadValue`` where no span is so long.
        """
        spans = [span for span in self.spans(part) if len(span) > length]
        if not spans:
            raise BadValue(self.too_short(length))
        starts = torch.tensor([len(span) - length for span in spans]).cumsum(0)
        drawn = torch.randint(int(starts[-1]), (count,), generator=rng)
        which = torch.searchsorted(starts, drawn, right=True)
        # Start of each span in their concatenation, and the number of its first window.
        begins = torch.tensor([0, *(len(span) for span in spans)]).cumsum(0)
        first = torch.cat((torch.zeros(1, dtype=torch.int64), starts))
        places = (begins[which] + drawn - first[which]).unsqueeze(1) + torch.arange(length + 1)
        return self._row(part, length)[places].long()

    @lru_cache(maxsize=8)  # noqa: B019  (a corpus lives as long as the process)
    def _row(self, part: str, length: int) -> Tensor:
        return torch.cat([span for span in self.spans(part) if len(span) > length])

    def too_short(self, length: int) -> str:
        """Return the complaint about windows of ``length`` tokens."""
        tokens = sum(map(len, (*self.training, *self.held_out)))
        return (
            f"{self.name} has {tokens:,} tokens; a held-out part has {max(map(len, self.held_out)):,}, too few for "
            f"windows of {length:,} and the token after them: it takes about {PARTS * (length + 1):,}."
        )

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the tokens as text; bytes that are not printable characters as ``·``, a line break as ``↵``."""
        if self.tokenizer is None:
            text = "".join(chr(token) if 32 <= token < 127 or token == 10 else "·" for token in tokens)
        else:
            text = self.tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text.replace("\n", "↵")

    def ids(self, text: str) -> list[int] | None:
        """Return the tokens of a text; None where it has a word that the tokenizer does not know."""
        if self.tokenizer is None:
            return [*text.encode()]
        if isinstance(self.tokenizer, grammar.Words):
            return self.tokenizer.ids(text)
        try:
            encoded = self.tokenizer.encode(text, add_special_tokens=False).ids
        except Exception:  # the library raises Exception itself, of a word where it has no token for unknown ones
            return None
        return None if _unknown(self.tokenizer) in encoded else list(encoded)

    def words_of(self, text: str) -> list[int]:
        """Return the number of the word that each token of ``ids`` belongs to.

        Words are those of the tokenizer's own splitting; of bytes a blank begins a word, as in GPT-2's.
        """
        if self.tokenizer is None:
            return list(accumulate(byte in b" \n\t" for byte in text.encode()))
        if isinstance(self.tokenizer, grammar.Words):
            return list(range(len(self.tokenizer.ids(text) or ())))
        found = self.tokenizer.encode(text, add_special_tokens=False).word_ids
        # Added tokens belong to no word: each is a separate one, numbered by where it stands, below all others.
        return [-1 - place if word is None else word for place, word in enumerate(found)]

    def spans_of(self, text: str) -> list[tuple[int, int]]:
        """Return the span of characters, from and up to, of each token of ``ids``."""
        if self.tokenizer is None:
            return [(at, at + 1) for at, character in enumerate(text) for _ in character.encode()]
        if isinstance(self.tokenizer, grammar.Words):
            return self.tokenizer.spans(text)
        return list(self.tokenizer.encode(text, add_special_tokens=False).offsets)

    def bytes_of(self, tokens: Sequence[int]) -> bytes:
        """Return the text of the tokens as bytes, as a compressor reads them."""
        return bytes(tokens) if self.tokenizer is None else self.tokenizer.decode(list(tokens)).encode()

    def __hash__(self) -> int:
        return hash(self.sha)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Corpus) and (self.name, self.sha) == (other.name, other.sha)


def corpus(file: str, tokenizer: str = "") -> Corpus:
    """Read a text; the one that comes with Python where ``file`` is empty. Read again only where it has changed.

    ``grammar`` in the place of a file is the text of ``grammar.py``, whose tokens are its words. Tokens are bytes, or
    those of a Hugging Face ``tokenizer.json``. Raises ``BadValue`` where a file is missing, empty, no text, too large
    or too short to be cut, or the tokenizer cannot be read or lacks words for the text.
    """
    return _corpus(file, tokenizer, _state(file), _state(tokenizer))


def _state(file: str) -> tuple[str, int, int] | None:
    """Path, time of change and size of a file; None for no file."""
    try:
        about = Path(file).stat() if file else None
    except OSError:  # whoever reads it says so
        about = None
    return (str(Path(file).absolute()), about.st_ctime_ns, about.st_size) if about else None


@lru_cache(maxsize=4)
def _corpus(file: str, tokenizer: str, *states: tuple[str, int, int] | None) -> Corpus:
    data, name = _text(file)
    if len(data) < PARTS * 2:
        raise BadValue(f"{name} has {len(data)} bytes, too few to be cut into {PARTS} parts.")
    if tokenizer:
        reads, raw = _tokenizer(tokenizer)
        return _in_words(data, name, reads, raw, tokenizer)
    if file == GRAMMAR:
        words = grammar.Words()
        sha = hashlib.sha256(data + " ".join(words.names).encode()).hexdigest()
        parts = list(_cut(torch.tensor(words.ids(data.decode()), dtype=torch.int32)))
        held = sum(len(words.decode(part.tolist())) for part in _held(parts))
        return Corpus(name, sha, len(words.names), _training(parts), tuple(_held(parts)), held, words)
    tokens = [torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in _cut(data)]
    sha, held = hashlib.sha256(data).hexdigest(), sum(map(len, _held(tokens)))
    return Corpus(name, sha, 256, _training(tokens), tuple(_held(tokens)), held)


def corpus_in(tokenizer: Any, file: str = "") -> Corpus:
    """Read a text, as ``corpus``, by a tokenizer of the package tokenizers that is loaded already."""
    data, name = _text(file)
    return _in_words(data, name, tokenizer, tokenizer.to_str().encode(), "of the model")


def _in_words(data: bytes, name: str, reads: Any, raw: bytes, called: str) -> Corpus:
    """The text in the words of a tokenizer, of which ``raw`` is the file and ``called`` the name."""
    try:
        parts = list(_cut(data.decode()))
    except UnicodeDecodeError as error:
        raise BadValue(f"{name} is not UTF-8 (byte {error.start}), which a tokenizer reads.") from None
    if len(parts[0]) < 2:
        raise BadValue(f"{name} has {len(data)} bytes, too few to be cut into {PARTS} parts.")
    tokens = [torch.tensor(ids, dtype=torch.int32) for ids in _ids(reads, parts, called, name)]
    sha, vocabulary = hashlib.sha256(data + raw).hexdigest(), reads.get_vocab_size(with_added_tokens=True)
    held = sum(len(part.encode()) for part in _held(parts))
    return Corpus(name, sha, vocabulary, _training(tokens), tuple(_held(tokens)), held, reads)


def _training(tokens: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Spans between the held-out parts."""
    return tuple(torch.cat(list(tokens[first + 1 : last])) for first, last in pairwise([-1, *_places()]))


def _places() -> range:
    """The held-out parts: the last of every ``EACH``."""
    return range(EACH - 1, PARTS, EACH)


def _held(parts: Sequence[Any]) -> list[Any]:
    return [parts[place] for place in _places()]


def _cut(text: Any) -> Iterable[Any]:
    """Cut bytes or characters into parts that differ by one at most."""
    ends = np.linspace(0, len(text), PARTS + 1).round().astype(int).tolist()
    return [text[first:last] for first, last in pairwise(ends)]


def _built_in() -> bytes:
    """The help texts in the order of their names, each paragraph once.

    Topics repeat one another: of the strings of 50 bytes in a held-out part, half would be in a training part too. With
    each paragraph once it is 1 of 100, and 374,000 of 466,000 bytes are left.
    """
    from pydoc_data.topics import topics

    paragraphs = re.split(r"\n\s*\n", "\n\n".join(topics[name] for name in sorted(topics)))
    first: dict[str, str] = {}
    for paragraph in paragraphs:
        first.setdefault(" ".join(paragraph.split()), paragraph)
    return "\n\n".join(first.values()).encode()


def _text(file: str) -> tuple[bytes, str]:
    """A text and its name."""
    if file == GRAMMAR:
        return grammar.text().encode(), GRAMMAR
    return (_file(file), file) if file else (_built_in(), BUILT_IN)


def _file(file: str) -> bytes:
    path = Path(file)
    if not path.exists():
        raise BadValue(f"There is no text '{file}' here.")
    try:
        data = foreign.read(path, MOST)
    except OSError as error:
        raise BadValue(f"{file} cannot be read: {error.strerror or error}.") from None
    if not data:
        raise BadValue(f"{file} is empty.")
    if b"\0" in data:
        raise BadValue(f"{file} is no text: it holds a zero byte, at {data.index(0):,}.")
    return data


def _tokenizer(file: str) -> tuple[Any, bytes]:
    """The tokenizer in a file, and the file's bytes."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadValue("a tokenizer is read by the package tokenizers: pip install 'icl_lab[hf]'.") from None
    raw = _file(file)
    try:
        return Tokenizer.from_buffer(raw), raw
    except Exception as error:  # the library raises Exception itself
        raise BadValue(f"{file} is no tokenizer.json of Hugging Face: {error}.") from None


def _unknown(tokenizer: Any) -> int | None:
    """The token for words that a tokenizer does not know; None where it has none."""
    found: int | None = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
    return found


def _ids(tokenizer: Any, parts: Sequence[str], file: str, name: str) -> list[list[int]]:
    """The tokens of each part; raises ``BadValue`` where the tokenizer has no words for something."""
    try:
        encoded = [each.ids for each in tokenizer.encode_batch(list(parts), add_special_tokens=False)]
    except Exception as error:  # the library raises Exception itself
        raise BadValue(f"the tokenizer {file} does not fit {name}: {error}.") from None
    unknown = _unknown(tokenizer)
    lost = sum(ids.count(unknown) for ids in encoded) if unknown is not None else 0
    if lost or not all(encoded):
        total = sum(map(len, encoded))
        raise BadValue(f"the tokenizer {file} does not fit {name}: {lost:,} of {total:,} tokens are unknown to it.")
    return encoded
