"""The task text: its numbers by hand, what names a run of it, and what it refuses before training."""

import json
import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.runs.spec import resolve
from icl_lab.tasks.base import Prompt
from tests.texts.test_corpus import tokenizer

pytestmark = pytest.mark.usefixtures("quick_pictures")
SMALL = ["--preset", "smoke", "--threads", "1", "--set", "train.steps=3", "--set", "train.batch=2"]
SMALL += ["--set", "model.width=8", "--set", "test.prompts=4", "--set", "train.curriculum.start=16"]
SMALL += ["--set", "train.curriculum.stop=16", "--set", "test.axes.length=16,32"]
WORDS = "the quick brown fox jumps over the lazy dog and does not come back before night falls\n"


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "book.txt"
    path.write_text(WORDS * 200)
    return path


def test_losses_are_those_of_arithmetic():
    """Four tokens with the probabilities 1/2, 1/4, 1/8 and 1/16: 1, 2, 3 and 4 bits; the tail is the last."""
    outputs = torch.full((1, 4, 256), -math.inf)
    for place in range(4):
        outputs[0, place, 7] = math.log(2.0 ** -(place + 1))
        outputs[0, place, 9] = math.log(1 - 2.0 ** -(place + 1))
    prompt = Prompt(torch.zeros(1, 4, dtype=torch.int64), torch.full((1, 4), 7.0), torch.ones(1, 4, dtype=torch.bool))
    task = tasks.build("text")
    views = task.views(task.errors(outputs, prompt), prompt)
    assert views["bits-per-byte"].item() == pytest.approx(2.5)
    assert views["nats"].item() == pytest.approx(2.5 * math.log(2))
    assert views["tail"].item() == pytest.approx(4 * math.log(2))
    assert task.loss(outputs, prompt).item() == pytest.approx(2.5 * math.log(2))


def test_tests_are_drawn_from_the_held_out_parts():
    (suite,) = tasks.build("text").suites().values()
    corpus = suite.corpus
    held = b"\0".join(span.numpy().tobytes() for span in corpus.held_out)
    seen = b"\0".join(span.numpy().tobytes() for span in corpus.training)
    for task, here, there in ((suite, held, seen), (tasks.build("text"), seen, held)):
        for row in task.sample(stream(0, "where"), 20, 200).tokens.tolist():
            assert bytes(row) in here
            assert bytes(row) not in there


def test_what_is_not_kept_is_replaced_and_still_wanted():
    task = tasks.build("text")
    whole, damaged = (task.sample(stream(0, "kept"), 200, 100, kept=kept) for kept in (100.0, 80.0))
    assert torch.equal(whole.tokens[:, 1:], whole.targets[:, :-1].long())
    assert torch.equal(whole.targets, damaged.targets)
    same = (whole.tokens == damaged.tokens).float().mean().item()
    assert 0.80 < same < 0.83  # a token drawn anew is the same by chance in one of about twenty


def test_a_file_of_ones_own_is_named_by_its_hash(book):
    first = resolve("text:file=book.txt", "softmax", "smoke")
    assert first.task.startswith("text:file=book.txt,sha=")
    assert resolve("text:file=book.txt", "softmax", "smoke") == first
    assert resolve(first.task, "softmax", "smoke") == first
    book.write_text(WORDS.upper() * 200)
    assert resolve("text:file=book.txt", "softmax", "smoke").hash != first.hash
    with pytest.raises(BadValue, match=r"book\.txt has changed: its SHA-256 begins with [0-9a-f]{12}, not with "):
        resolve(first.task, "softmax", "smoke")
    assert resolve("text", "softmax", "smoke").task == "text"


@pytest.mark.slow
def test_a_file_is_swept_and_its_run_says_what_was_read(book, run, tmp_path):
    out, err = run.ok("sweep", "--task", "text:file=book.txt", "--attn", "softmax", *SMALL)
    assert "reference:5-gram" in out
    (path,) = (tmp_path / "results").glob("runs/text-file=book.txt,sha=*/softmax/*/seed-0/env.json")
    assert json.loads(path.read_text())["reads"] == {"book.txt": tasks.build("text:file=book.txt").corpus.sha}


@pytest.mark.slow
def test_a_text_in_another_folder_is_a_folder_of_runs(book, run, tmp_path):
    _, err = run.ok("sweep", "--task", f"text:file={book}", "--attn", "softmax", *SMALL)
    assert len(list((tmp_path / "results").glob("runs/*/*/*/seed-0/grid.csv"))) == 1
    code, out, _ = run("list", "runs", "--results", str(tmp_path / "results"))
    assert (code, "seed 0 finished" in out) == (0, True)


@pytest.mark.slow
def test_a_run_of_another_version_of_the_text_of_python_is_named(run, tmp_path):
    sweep = ["sweep", "--task", "text", "--attn", "softmax", *SMALL]
    assert run(*sweep)[0] == 0
    (path,) = (tmp_path / "results").rglob("env.json")
    env = json.loads(path.read_text())
    (name,) = env["reads"]
    made_by = env["made_by"] | {"files": {name: "0" * 64}}
    path.write_text(json.dumps(env | {"reads": {name: "0" * 64}, "made_by": made_by}))
    path.with_name("manifest.json").unlink()  # as of a run that was trained with another Python
    _, _, err = run(*sweep)
    assert f"was made with another version of {name} (sha256 00000000, now " in err


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        ("text:file=nowhere.txt", "There is no text 'nowhere.txt' here."),
        ("text:file=book.txt", "a held-out part has 141, too few for windows of 300"),
        ("text:kept=1", "takes no option 'kept'"),
        ("text:file=book.txt,tokenizer=book.txt", "book.txt is no tokenizer.json of Hugging Face"),
    ],
)
def test_what_cannot_be_read_is_said_before_training(book, run, task, complaint, tmp_path):
    if "tokenizer=" in task:
        pytest.importorskip("tokenizers", reason="pip install 'icl_lab[hf]'")
    book.write_text(("x" * 99 + "\n") * 90)
    _, err = run.refused("sweep", "--task", task, "--attn", "softmax", *SMALL, "--set", "test.axes.length=16,300")
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("spec.json"))


@pytest.mark.slow
def test_words_of_a_tokenizer_are_trained_on(book, run, tmp_path):
    # Parts are cut at any character: the halves of words are words too.
    known = {piece for word in WORDS.split() for at in range(len(word)) for piece in (word[:at], word[at:]) if piece}
    words = tokenizer(tmp_path / "words.json", sorted(known))
    book.write_text(WORDS * 200)
    task = f"text:file=book.txt,tokenizer={words}"
    assert tasks.build(task).vocabulary == len(known)
    out, err = run.ok("sweep", "--task", task, "--attn", "softmax", *SMALL)
    assert "reference:gzip" in out


@pytest.mark.exhaustive
def test_losses_are_compared_as_losses_and_not_as_rates(run, tmp_path):
    out, err = run.ok("compare", "--task", "text", "--attn", "softmax", "--attn", "ssa", "--seeds", "2", *SMALL)
    assert "Wilson" not in out
    assert "reference:5-gram" in out
    assert not tasks.build("text").rates
    assert tasks.build("needle").rates
