"""The tasks text and masked-text: their numbers by hand, what names a run, what is asked and read, and refusals."""

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
SMALL = ["--preset", "smoke", "--threads", "1", "--set", "train.steps=3 train.batch=2 model.width=8 test.prompts=4"]
SMALL += ["--set", "train.curriculum.start=16 train.curriculum.stop=16 test.axes.length=16,32"]
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


MASK = 256


def drawn(task="masked-text", prompts=200, length=100, **shift):
    return tasks.build(task).sample(stream(0, "masked"), prompts, length, **shift)


@pytest.mark.parametrize(
    ("share", "length", "asked"),
    [("15", 100, 15), ("15", 128, 19), ("15", 12, 2), ("40", 10, 4), ("15", 2, 1), ("100", 7, 7)],
)
def test_as_many_places_are_asked_as_its_share_says(share, length, asked):
    prompt = drawn(f"masked-text:share={share}", length=length)
    assert set(prompt.scored.sum(1).tolist()) == {asked}


@pytest.mark.parametrize(("options", "masked", "random"), [(":unmasked=0", 0.9, 0.1), (":random=0,unmasked=0", 1, 0)])
def test_what_is_read_at_asked_places(options, masked, random):
    """Of 30,000 asked places; a token drawn anew is the true one in one of 256, so that its kind is not known then."""
    prompt = drawn(f"masked-text{options}", prompts=2000)
    read, true = prompt.tokens[prompt.scored], prompt.targets[prompt.scored].long()
    hidden, other = (read == MASK).float().mean().item(), ((read != MASK) & (read != true)).float().mean().item()
    assert hidden == pytest.approx(masked, abs=0.012 * (masked < 1))  # five standard deviations
    assert other == pytest.approx(random * 255 / 256, abs=0.009 * (random > 0))
    assert (read == true).float().mean().item() < 3 * random / 256 + 1e-9  # only where it was drawn anew


def test_the_kinds_are_those_of_the_draw():
    """The same draw by hand: the order of one row of numbers says which places are asked, the next row what they read.

    A token of a kind is known from the draw alone, so that no other token, above all not the true one, can stand there.
    """
    task, rng = tasks.build("masked-text"), stream(0, "masked")
    window = task.corpus.windows("train", rng, 200, 99)
    torch.randint(len(task.corpus.everything_seen), (200, 100), generator=rng)
    torch.rand(200, 100, generator=rng)
    order, kind = torch.rand(200, 100, generator=rng), 100 * torch.rand(200, 100, generator=rng)
    words = torch.randint(256, (200, 100), generator=rng)
    prompt = drawn()
    for row in range(200):
        asked = order[row].argsort()[:15].tolist()
        assert sorted(asked) == prompt.scored[row].nonzero().flatten().tolist()
        for t in range(100):
            wanted = int(window[row, t])
            if t in asked:
                wanted = int(words[row, t]) if kind[row, t] < 10 else wanted if kind[row, t] >= 90 else MASK
            assert int(prompt.tokens[row, t]) == wanted
    assert torch.equal(prompt.targets.long(), window)


def test_other_texts_read_the_same_where_they_are_masked():
    """The input at a masked or redrawn place does not hang on the token that stood there."""
    prompt = drawn("masked-text:unmasked=0")
    again = tasks.build("masked-text:unmasked=0,part=held-out").sample(stream(0, "masked"), 200, 100)
    assert not torch.equal(prompt.targets, again.targets)
    assert torch.equal(prompt.scored, again.scored)
    assert torch.equal(prompt.tokens[prompt.scored], again.tokens[again.scored])


def test_loss_and_errors_by_hand():
    """Two asked places with the probabilities 1/2 and 1/8, the second of them wrong; a third that nobody asks."""
    outputs = torch.full((1, 3, 256), -math.inf)
    for place, p in enumerate((0.5, 0.125, 1e-9)):
        outputs[0, place, 7], outputs[0, place, 9] = math.log(p), math.log(1 - p) - (1e-3 if p == 0.5 else 0)
    scored = torch.tensor([[True, True, False]])
    prompt = Prompt(torch.full((1, 3), MASK), torch.full((1, 3), 7.0), scored)
    task = tasks.build("masked-text")
    errors = task.errors(outputs, prompt)
    bits = (errors / math.log(2))[0].tolist()
    assert bits[:2] == pytest.approx([1, 3], abs=1e-3)
    assert math.isnan(bits[2])
    assert task.loss(outputs, prompt).item() == pytest.approx(2 * math.log(2), abs=1e-3)
    assert task.views(errors, prompt)["nats"].item() == pytest.approx(2 * math.log(2), abs=1e-3)
    assert task.confidence(outputs, prompt)["wrong"].item() == 0.5


def test_what_is_not_asked_is_kept_as_in_text():
    whole, damaged = (drawn(kept=kept) for kept in (100.0, 80.0))
    assert torch.equal(whole.scored, damaged.scored)
    assert torch.equal(whole.targets, damaged.targets)
    other = ~whole.scored
    assert torch.equal(whole.tokens[other], whole.targets[other].long())
    assert torch.equal(whole.tokens[whole.scored], damaged.tokens[damaged.scored])
    assert 0.80 < (damaged.tokens == damaged.targets)[other].float().mean().item() < 0.83


def test_both_neighbours_by_hand(tmp_path, monkeypatch):
    """After a always b or c, before d always b: of a, mask, d nothing but b fits; with d hidden both do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abdaceabdace" * 400)
    task = tasks.build("masked-text:file=a.txt")
    rows = torch.tensor([[ord("a"), MASK, ord("d")], [ord("a"), MASK, MASK], [MASK, MASK, MASK]])
    prompt = Prompt(rows, rows.float(), rows == MASK)
    p = task.references()["neighbours"](prompt).exp()
    assert torch.allclose(p.sum(2), torch.ones(3, 3))
    assert p[0, 1, ord("b")] > 0.99
    assert p[1, 1, ord("b")].item() == pytest.approx(0.5, abs=0.01)
    assert p[1, 1, ord("c")].item() == pytest.approx(0.5, abs=0.01)
    assert p[2, 1, ord("a")].item() == pytest.approx(1 / 3, abs=0.01)  # nothing is known: the unigram


def test_models_see_both_sides_unless_told_otherwise():
    assert resolve("masked-text", "softmax", "smoke").model.mask == "full"
    assert resolve("masked-text", "softmax", "smoke", ["model.mask=causal"]).model.mask == "causal"


@pytest.mark.parametrize("name", ["[MASK]", "<mask>", ""])
def test_the_mask_of_a_tokenizer(tmp_path, monkeypatch, run, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab ba " * 20_000)
    tokenizer(tmp_path / "words.json", ["ab", "ba", "a", "b", *[name][: bool(name)]])
    choice = "masked-text:file=a.txt,tokenizer=words.json"
    if name:
        task = tasks.build(choice)
        assert (task.vocabulary, task.outputs, task.corpus.mask) == (5, 5, 4)
        tokens = task.sample(stream(0, "x"), 500, 20)
        assert set(tokens.tokens.unique().tolist()) == {0, 1, 2, 3, 4}
        assert int(tokens.tokens[~tokens.scored].max()) < 4
        return
    code, _, err = run("sweep", "--task", choice, "--attn", "softmax", "--preset", "smoke")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "has no mask token: none is called [MASK] or <mask>" in err
    assert not list(tmp_path.rglob("spec.json"))


def test_the_mask_is_no_word_that_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab ba " * 800)
    tokenizer(tmp_path / "words.json", ["ab", "[MASK]", "ba", "a", "b"])
    choice = "masked-text:file=a.txt,tokenizer=words.json,share=100,random=100,unmasked=0"
    words, often = drawn(choice, prompts=400, length=20).tokens.unique(return_counts=True)
    assert words.tolist() == [0, 2, 3, 4]
    assert (often / 8000 - 0.25).abs().max() < 0.025  # five standard deviations


@pytest.mark.slow
def test_a_masked_model_is_trained_and_not_exported(run, tmp_path, monkeypatch, quick_pictures):
    monkeypatch.chdir(tmp_path)
    words = ("--task", "masked-text", "--attn", "softmax", *SMALL, "--set", "model.mask=causal")
    out, err = run.ok("sweep", *words)
    assert "reference:neighbours" in out
    (path,) = (tmp_path / "results").rglob("env.json")
    assert list(json.loads(path.read_text())["reads"]) == ["pydoc_data.topics"]
    name = f"masked-text/softmax/{path.parents[1].name}"
    _, err = run.refused("export-hf", name, "--to", str(tmp_path / "made"), "--results", str(tmp_path / "results"))
    assert "masked-text fills in masked tokens" in err
