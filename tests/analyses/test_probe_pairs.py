"""Minimal pairs: scores against a model whose probabilities are known, accuracies by hand, files, and refusals."""

import dataclasses
import math
import os

import numpy as np
import pytest
import torch

from icl_lab.analyses import probe_pairs, runner
from icl_lab.analyses.probe_pairs import ProbePairs
from icl_lab.base.errors import BadValue
from icl_lab.base.published import load
from icl_lab.base.rng import stream
from icl_lab.claims import experiment
from icl_lab.tasks.texts import grammar
from icl_lab.tasks.texts.corpus import corpus

SHORT = ["train.curriculum.start=16", "train.curriculum.stop=16", "train.steps=2", "test.axes.length=16"]
SHORT += ["test.axes.kept=100"]
GRAMMAR = "masked-text:file=grammar"


class Table:
    """A model whose logits at a place are a row of a table: that of the token which it reads there."""

    def __init__(self, words):
        self.logits = torch.randn(words, words, generator=stream(0, "table"))
        self.read = []

    def __call__(self, tokens):
        self.read += tokens.tolist()
        return self.logits[tokens]

    def bytes_a_prompt(self, t):
        return 100e6  # two sentences at once


@pytest.mark.parametrize("scoring", ["next", "masked", "whole"])
@pytest.mark.slow
def test_scores_of_known_probabilities(scoring):
    text = corpus("grammar")
    model = Table(text.vocabulary)
    log_p = model.logits.double().log_softmax(1)
    sentences = ["the dog runs .", "dogs run .", "why do the geese shout ?", "the cat runs ."]
    found = probe_pairs.scores(model, text, sentences, scoring, torch.device("cpu"))
    for sentence, score in zip(sentences, found.tolist(), strict=True):
        (end,), words = text.ids("\n"), text.ids(sentence)
        wanted = {
            "next": sum(log_p[before, word].item() for before, word in zip([end, *words], words, strict=False)),
            "masked": sum(log_p[text.mask, word].item() for word in words),
            "whole": sum(log_p[word, word].item() for word in [end, *words, end]) / (len(words) + 2),
        }
        assert score == pytest.approx(wanted[scoring], rel=1e-5)
    if scoring == "masked":  # each word hidden once, and nothing else
        rows = [[end, *text.ids(sentence), end] for sentence in sentences]
        hidden = [[*row[:t], text.mask, *row[t + 1 :]] for row in rows for t in range(1, len(row) - 1)]
        assert sorted(model.read) == sorted(hidden)


def test_the_rest_of_a_word_is_masked_with_a_token():
    """Bytes of "ab c": a with b, b alone, the blank with c, c alone."""
    text, model = corpus(""), Table(257)
    assert text.words_of("ab c") == [0, 0, 1, 1]
    probe_pairs.scores(model, text, ["ab c"], "masked", torch.device("cpu"))
    mask, (a, b, blank, c) = text.mask, b"ab c"
    assert model.read == [
        [10, mask, mask, blank, c, 10], [10, a, mask, blank, c, 10],
        [10, a, b, mask, mask, 10], [10, a, b, blank, mask, 10],
    ]  # fmt: skip


def test_words_of_a_tokenizer_are_those_that_it_splits_into():
    tokenizers = pytest.importorskip("tokenizers")
    reads = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "sing": 1, "##ing": 2, "a": 3}, unk_token="[UNK]")
    )
    reads.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    text = dataclasses.replace(corpus(""), tokenizer=reads)
    assert text.ids("singing a sing") == [1, 2, 3, 1]
    assert text.words_of("singing a sing") == [0, 0, 1, 2]
    assert corpus("grammar").words_of("the dog runs .") == [0, 1, 2, 3]


@pytest.mark.parametrize("scoring", ["next", "masked"])
def test_a_sentence_is_read_in_the_tokens_of_a_text(scoring):
    """The full stop and the end of the line are one token, as in GPT-2's pairs: the last one of the sentence."""
    tokenizers = pytest.importorskip("tokenizers")
    names = ["a", "b", ".", "\n", ".\n", "[MASK]"]
    model = tokenizers.models.BPE({name: token for token, name in enumerate(names)}, [(".", "\n")])
    text, table = dataclasses.replace(corpus(""), tokenizer=tokenizers.Tokenizer(model)), Table(len(names))
    a, b, stop, end, both, mask = range(len(names))
    assert text.ids("\nab.\n") == [end, a, b, both]
    (found,) = probe_pairs.scores(table, text, ["ab."], scoring, torch.device("cpu")).tolist()
    log_p = table.logits.double().log_softmax(1)
    pairs = {"next": [(end, a), (a, b), (b, both)], "masked": [(mask, a), (mask, b), (mask, both)]}
    assert found == pytest.approx(sum(log_p[pair].item() for pair in pairs[scoring]), rel=1e-5)
    assert not {stop} & {token for row in table.read for token in row}


@pytest.mark.slow
def test_a_tie_is_half_and_the_higher_score_wins(tmp_path, untrained, tiny, monkeypatch):
    lines = "the dog .|the cat .|the dog .|the dog .|the cat .|the dog .|no dog .|no cat .|"
    (tmp_path / "some.txt").write_text(lines.replace("|", "\n"))
    better = {"the dog .": 1.0, "the cat .": 2.0, "no dog .": 0.0, "no cat .": 3.0}
    monkeypatch.setattr(probe_pairs, "scores", lambda model, text, side, *_: torch.tensor([better[s] for s in side]))
    found = ProbePairs(pairs=str(tmp_path)).measure(untrained(tiny(GRAMMAR, "softmax", *SHORT)))
    ((row,), single) = found["accuracy"], found["prompts"]
    assert (row["metric"], row["value"], row["count"]) == ("some", 2.5 / 4, 4)
    assert [each["value"] for each in single] == [1, 0.5, 0, 1]


@pytest.mark.slow
def test_which_scoring_a_model_gets(untrained, tiny, monkeypatch):
    asked = []

    def seen(model, text, side, scoring, device):
        asked.append(scoring)
        return torch.zeros(len(side))

    monkeypatch.setattr(probe_pairs, "scores", seen)
    for task, scoring in ((GRAMMAR, "masked"), (GRAMMAR, "whole"), ("text:file=grammar", "masked")):
        ProbePairs(prompts=2, scoring=scoring).measure(untrained(tiny(task, "softmax", *SHORT)))
    assert list(dict.fromkeys(asked)) == ["masked", "whole", "next"]
    assert len(asked) == 3 * 12 * 2


def test_standard_errors_over_seeds_and_pairs_by_hand():
    values = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    # Means of seeds 0.75 and 0.25: variance 0.125. Means of pairs 1, 0, 0.5, 0.5: variance 1/6.
    assert probe_pairs.error(values) == pytest.approx(math.sqrt(0.125 / 2 + (1 / 6) / 4))
    assert probe_pairs.error(values[:1]) == pytest.approx(math.sqrt(0.25 / 4))
    assert probe_pairs.spread(values, "{:+.2f}") == "+0.50 ± 0.323"


@pytest.mark.exhaustive
def test_claims_read_paradigms_and_their_mean(runs, lab):
    groups = runs(GRAMMAR, "softmax", "ssa", seeds=2, settings=SHORT)
    analysis = runner.checked(ProbePairs(prompts=8), groups)
    found = runner.ask(analysis, groups, lab)
    names = list(grammar.grammar().pairs)
    each = [analysis.value(found, "ssa", {}, name, 1) for name in names]
    assert each == [found["accuracy"].at(attn="ssa", seed=1, metric=name) for name in names]
    assert analysis.value(found, "ssa", {}, "", 1) == pytest.approx(sum(each) / 12)
    assert analysis.value(found, "reference:0.5", {}, names[0], 1) == 0.5
    drawn = analysis.on_resamples(found, "ssa", {}, "mean", 1)
    assert drawn[0] == pytest.approx(sum(each) / 12)
    assert drawn[1:].std() > 0
    table = "\n".join(analysis.table(found))
    gap = [probe_pairs.trials(found, rule, names[3]) for rule in ("ssa", "softmax")]
    assert f"| {probe_pairs.spread(gap[0] - gap[1], '{:+.3f}')} |" in table
    assert analysis.finding(found).startswith("The grammatical sentence wins in ")


ZORRO = "dogs is big .\ndogs are big .\nthe unicorn are .\nthe unicorn is .\nwe runs .\nwe run .\n"


@pytest.mark.slow
def test_a_folder_is_read_as_zorro_writes_it(tmp_path, run, quick_pictures):
    folder = tmp_path / "sentences"
    folder.mkdir()
    (folder / "agreement.txt").write_text(ZORRO)
    (folder / "case.txt").write_text("i saw he .\ni saw him .\nhim saw me .\nhe saw me .\n")
    settings = [word for each in SHORT for word in ("--set", each)]
    asked = ["probe-pairs", "--preset", "smoke", "--attn", "softmax", *settings, "--results", str(tmp_path / "results")]
    out, err = run.ok(*asked, "--pairs", str(folder))
    assert "1 of 5 pairs hold words that grammar lacks and are left out." in out + err
    assert "| agreement | 2 |" in out
    (study,) = (tmp_path / "results").glob("probe-pairs-*")
    assert {path.name for path in study.iterdir()} >= {"accuracy.csv", "prompts.csv", "probe-pairs.png", "study.json"}
    (folder / "case.txt").write_text("him saw me .\nhe saw me .\ni saw he .\ni saw him .\n")
    out, err = run.ok(*asked, "--pairs", str(folder))
    assert len(list((tmp_path / "results").glob("probe-pairs-*"))) == 2  # other pairs are another question


@pytest.mark.parametrize(
    ("task", "files", "options", "complaint"),
    [
        (GRAMMAR, {}, [], "there are no pairs in"),
        (GRAMMAR, {"a.txt": ZORRO + "more\n"}, [], "a.txt has 7 sentences: pairs are two each"),
        (GRAMMAR, {"a.txt": "only this .\nonly that .\n"}, [], "a.txt has 2 sentences"),
        (GRAMMAR, {"a.txt": "ein hund .\nein hunde .\n" * 2}, [], "no pair of a is made of words that grammar has"),
        (GRAMMAR, {"a.txt": "dogs is big .\ndogs are big .\nein hund .\nein hunde .\n"}, [], "1 pair of a is made of"),
        (GRAMMAR, {"a=b.txt": ZORRO}, [], "'a=b' in "),
        (GRAMMAR, {"a\tb.txt": ZORRO}, [], "names no paradigm"),
        (GRAMMAR, {"mean.txt": ZORRO}, [], "names no paradigm"),
        (GRAMMAR, {"a.txt": ZORRO + "dogs " * 10_000 + ".\ndogs .\n"}, [], "a sentence of 50,001 characters, at most"),
        (GRAMMAR, {"a.txt": ZORRO}, ["--scoring", "loud"], "scoring is masked or whole, got loud"),
        (GRAMMAR, {"a.txt": ZORRO}, ["--sha", "123"], "the pairs have changed"),
        ("linear", {"a.txt": ZORRO}, [], "has no text, whose models would be language models"),
    ],
)
def test_what_cannot_be_asked_is_one_line(tmp_path, run, task, files, options, complaint):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    asked = ["probe-pairs", "--task", task, "--preset", "smoke", "--attn", "softmax", "--pairs", str(folder), *options]
    code, _, err = run(*asked, "--results", str(tmp_path / "results"))
    assert (code, len(err.strip().splitlines())) == (2, 1), err
    assert complaint in err
    assert not list(tmp_path.rglob("spec.json"))


def test_files_of_pairs_are_texts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(ZORRO, encoding="utf-8-sig")  # a byte order mark is no part of a sentence
    assert probe_pairs.read(path)[0] == ("dogs is big .", "dogs are big .")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadValue, match=r"a\.txt cannot be read"):
        probe_pairs.read(path)
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe.txt")
        with pytest.raises(BadValue, match="pipe or a device"):
            probe_pairs.read(tmp_path / "pipe.txt")


def test_the_experiment_claims_what_the_paper_prints():
    """Each row of Table 3 for each n, in the direction and of the size that is printed, and the two means."""
    made = experiment.load("grammar-pairs", experiment.place(experiment.Path("experiments")))
    cells = load("ssa_table3")
    known, probes = list(grammar.grammar().pairs), {row["probe"].text for row in cells.rows}
    printed = {claim.left.of: [] for claim in made.claims}
    for claim in made.claims:
        method = claim.left.of.replace(", n", "").replace("ssa", "SSA")
        row, _, said = claim.where.removeprefix("Table 3, ").partition(": ")
        rows = probes if claim.metric == "mean" else [row]
        own, base = (
            sum(cells.at("accuracy", probe=row, method=of).number for row in rows) / len(rows)
            for of in (method, "Softmax")
        )
        assert claim.printed.difference == pytest.approx((own - base) / 100, abs=1e-6)
        ours, softmax = (float(word) for word in said.removesuffix(" percent").split(" against "))
        assert claim.printed.difference == pytest.approx((ours - softmax) / 100, abs=1e-4)
        assert claim.is_ == ("above" if claim.printed.difference > 0 else "below")
        printed[claim.left.of].append(claim.metric)
    assert [*printed.values()] == [["mean", *known]] * 2
