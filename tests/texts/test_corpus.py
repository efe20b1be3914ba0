"""A text is cut into training and held-out parts that share nothing, and read as bytes or as a tokenizer's words."""

import json
import os

import pytest
import torch

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.tasks.texts.corpus import EACH, PARTS, corpus


@pytest.fixture
def numbered(tmp_path):
    """A text of 64 parts of 100 bytes, each the letter of its own: which part a byte is from can be read off."""
    letters = [chr(33 + part) for part in range(PARTS)]
    path = tmp_path / "numbered.txt"
    path.write_text("".join(100 * letter for letter in letters))
    return str(path), letters


def test_every_eighth_part_is_held_out(numbered):
    path, letters = numbered
    found = corpus(path)
    assert [bytes(span.tolist()).decode() for span in found.held_out] == [100 * x for x in letters[EACH - 1 :: EACH]]
    assert "".join(bytes(span.tolist()).decode() for span in found.training) == "".join(
        100 * letter for place, letter in enumerate(letters) if place % EACH != EACH - 1
    )


@pytest.mark.parametrize("part", ["train", "held-out"])
def test_windows_never_cross_into_text_of_the_other_kind(numbered, part):
    path, letters = numbered
    held = {ord(letter) for letter in letters[EACH - 1 :: EACH]}
    windows = corpus(path).windows(part, stream(0, "windows"), 2000, 90)
    assert windows.shape == (2000, 91)
    assert {int(token) in held for token in windows.unique()} == {part == "held-out"}
    # Neighbouring bytes are of one part or of two that follow one another.
    assert set((windows[:, 1:] - windows[:, :-1]).unique().tolist()) <= {0, 1}


def test_each_window_is_as_likely_as_any_other(tmp_path):
    """64 parts of 6 bytes: 8 held-out parts with 3 windows of 4 bytes each."""
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(range(1, 7)) * PARTS)
    windows = corpus(str(path)).windows("held-out", stream(0, "even"), 30_000, 3)
    starts, counts = windows[:, 0].unique(return_counts=True)
    assert starts.tolist() == [1, 2, 3]
    assert (counts / 10_000 - 1).abs().max() < 0.05  # four standard deviations are 0.033


def test_the_longest_window_fits_and_one_more_does_not(numbered):
    found = corpus(numbered[0])
    assert found.longest_window == 99
    assert found.windows("held-out", stream(0), 3, 99).shape == (3, 100)
    with pytest.raises(BadValue, match=r"6,400 tokens; a held-out part has 100, too few for windows of 100 .* 6,464"):
        found.windows("held-out", stream(0), 3, 100)


def test_the_text_of_python_repeats_little_of_what_is_held_out():
    """With topics as they are, half of the strings of 50 bytes would stand in a training part as well."""
    found = corpus("")
    seen = {row for span in found.training for row in windows_of(span, 50)}
    held = [row for span in found.held_out for row in windows_of(span, 50)]
    assert sum(row in seen for row in held) / len(held) < 0.02
    assert found.vocabulary == 256
    assert found.bytes_a_token == 1


def windows_of(span, length):
    data = span.numpy().tobytes()
    return [data[start : start + length] for start in range(len(data) - length)]


def tokenizer(path, words, unknown=None):
    """A tokenizer of whole words, as Hugging Face writes one."""
    pytest.importorskip("tokenizers", reason="pip install 'icl_lab[hf]'")
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=unknown or "[none]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(path))
    return str(path)


def test_a_tokenizer_reads_each_part_by_itself(tmp_path):
    (tmp_path / "a.txt").write_text(("abc def " * 10) * PARTS)
    found = corpus(str(tmp_path / "a.txt"), tokenizer(tmp_path / "words.json", ["abc", "def"]))
    assert found.vocabulary == 2
    assert [len(span) for span in found.held_out] == [20] * 8
    assert found.bytes_a_token == 4
    assert found.spelled([0, 1]) == "abc def"
    assert found.sha != corpus(str(tmp_path / "a.txt")).sha


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "There is no text '"),
        (b"", "is empty"),
        (b"abc" * 40, "has 120 bytes, too few to be cut into 64 parts"),
        (b"abc\0" * 100, "is no text: it holds a zero byte, at 3"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, content, complaint):
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadValue, match=complaint):
        corpus(str(path))


def test_a_folder_is_no_text(tmp_path):
    with pytest.raises(BadValue, match="cannot be read: Is a directory"):
        corpus(str(tmp_path))


def test_tokenizers_that_do_not_fit_are_refused(tmp_path):
    pytest.importorskip("tokenizers", reason="pip install 'icl_lab[hf]'")
    text = tmp_path / "a.txt"
    text.write_text("abc def " * 1000)
    (tmp_path / "no.json").write_text(json.dumps({"what": 1}))
    with pytest.raises(BadValue, match=r"no\.json is no tokenizer\.json of Hugging Face"):
        corpus(str(text), str(tmp_path / "no.json"))
    known = tokenizer(tmp_path / "short.json", ["abc", "?"], unknown="?")
    with pytest.raises(BadValue, match=r"does not fit .*a\.txt: [\d,]+ of [\d,]+ tokens are unknown to it"):
        corpus(str(text), known)
    latin = tmp_path / "latin.txt"
    latin.write_bytes("é".encode("latin-1") * 1000)
    with pytest.raises(BadValue, match=r"latin\.txt is not UTF-8 \(byte 0\)"):
        corpus(str(latin), known)
    assert corpus(str(latin)).vocabulary == 256  # bytes need no encoding


def test_what_is_spelled_has_no_line_breaks():
    assert corpus("").spelled([104, 10, 200]) == "h↵·"
    assert torch.equal(corpus("").everything_seen, torch.cat(corpus("").training))


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
def test_a_text_is_a_regular_file_of_bounded_size(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(BadValue, match="cannot be read: it is a pipe or a device"):
            corpus(str(name))
    monkeypatch.setattr("icl_lab.tasks.texts.corpus.MOST", 100)
    (tmp_path / "book.txt").write_text("x" * 101)
    with pytest.raises(BadValue, match="it has 101 bytes, at most 100 are read"):
        corpus(str(tmp_path / "book.txt"))
