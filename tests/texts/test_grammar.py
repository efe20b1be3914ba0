"""The grammar: forms of words, sentences by hand, pairs that differ in one thing, and a text of its own words."""

import hashlib
import re

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.tasks.texts import grammar as g
from icl_lab.tasks.texts.corpus import corpus

SMALL = """
[nouns]
dog = "dog mouse/mice"
[verbs]
run = "walk carry/carried/carried/carrying take/took/taken/taking watch fix"
[words]
adj = "big"
[forms]
be = [{ sg = "is", pl = "are" }]
name = [{ f = "Anna", m = "Ben" }]
[rules]
sentence = "1 <np.#> <be.#> <adj> ."
np = '''
1 the <dog.#>
1:sg <name.&>'''
[pairs]
number = [["the <dog.#> and the <dog2.@> <be.#> <adj>", "the <dog.!#> and the <dog2.@> <be.#> <adj>"]]
"""


def test_forms_of_nouns_and_verbs():
    words = g.Grammar(SMALL).words
    assert words["dog"] == [{"sg": "dog", "pl": "dogs"}, {"sg": "mouse", "pl": "mice"}]
    forms = [(verb["base"], verb["sg"], verb["past"], verb["part"], verb["ing"]) for verb in words["run"]]
    assert forms == [
        ("walk", "walks", "walked", "walked", "walking"),
        ("carry", "carries", "carried", "carried", "carrying"),
        ("take", "takes", "took", "taken", "taking"),
        ("watch", "watches", "watched", "watched", "watching"),
        ("fix", "fixes", "fixed", "fixed", "fixing"),
    ]


def test_all_sentences_of_a_small_grammar():
    drawn = g.Grammar(SMALL).sentences("x")
    often = [next(drawn) for _ in range(4000)]
    names = {f"{name} is big .": 1 / 8 for name in ("Anna", "Ben")}
    first = 0.5 ** (1 / g.POWER)  # the share of the first of two words
    singular = {"the dog is big .": first / 4, "the mouse is big .": (1 - first) / 4}
    plural = {"the dogs are big .": first / 2, "the mice are big .": (1 - first) / 2}
    expected = names | singular | plural
    assert set(often) == set(expected)
    for sentence, share in expected.items():
        assert often.count(sentence) / 4000 == pytest.approx(share, abs=0.04)  # five standard deviations
    again = g.Grammar(SMALL).sentences("x")
    assert often[:50] == [next(again) for _ in range(50)]


def test_words_of_a_pair_are_shared_and_differ_in_the_mark():
    drawn = g.Grammar(SMALL).drawn_pairs("number", "x")
    for bad, good in (next(drawn) for _ in range(200)):
        first, second = re.fullmatch(r"the (\w+) and the (\w+) (?:is|are) big", good).groups()
        assert {first, second}.isdisjoint({"dog", "dogs"}) is False  # two nouns, and there are two
        assert {first, second}.isdisjoint({"mouse", "mice"}) is False
        other = {"dog": "dogs", "dogs": "dog", "mouse": "mice", "mice": "mouse"}[first]
        assert bad == good.replace(f"the {first} and", f"the {other} and")
        assert ("is" in good.split()) == (first in ("dog", "mouse"))


BY_HAND = {
    "agreement_subject_verb-across_prepositional_phrase": [
        ("the teeth with the plane is sad .", "the tooth with the plane is sad ."),
        ("the boxes beside the pocket was hot .", "the box beside the pocket was hot ."),
    ],
    "agreement_subject_verb-across_relative_clause": [
        ("the boat that they pull were cold .", "the boats that they pull were cold ."),
        ("the mountains that you pull is brave .", "the mountain that you pull is brave ."),
    ],
    "agreement_subject_verb-in_question_with_aux": [
        ("when do the pirate sneeze ?", "when do the pirates sneeze ?"),
        ("how does the monkeys become cold ?", "how does the monkey become cold ?"),
    ],
    "anaphor_agreement-pronoun_gender": [
        ("Lucy must not like himself .", "Lucy must not like herself ."),
        ("Maria can not chase himself .", "Maria can not chase herself ."),
    ],
    "argument_structure-dropped_argument": [
        ("the funny baby brings him .", "bring him the funny baby ."),
        ("the farmer tells us about .", "tell us about the farmer ."),
    ],
    "argument_structure-swapped_arguments": [
        ("the brother sent that bus we .", "we sent the brother that bus ."),
        ("the rabbit sent the game i .", "i sent the rabbit the game ."),
    ],
    "argument_structure-transitive": [
        ("can every fox buy ?", "can every fox fall ?"),
        ("can the robot chase ?", "can the robot run ?"),
    ],
    "binding-principle_a": [
        ("Clara can think about herself holds that lamp .", "Clara can think about herself holding that lamp ."),
        ("Philip can dream about himself needs that leaf .", "Philip can dream about himself needing that leaf ."),
    ],
    "case-subjective_pronoun": [
        ("the woman sold she their crayon .", "she sold the woman their crayon ."),
        ("the brother showed i their bike .", "i showed the brother their bike ."),
    ],
    "filler-gap-wh_question_subject": [
        ("Laura noticed who the king might kiss cakes .", "Laura noticed the king that might kiss cakes ."),
        (
            "Lucy remembered who the dinosaur is kicking blankets .",
            "Lucy remembered the dinosaur that is kicking blankets .",
        ),
    ],
    "irregular-verb": [
        ("Philip seen the purple one this morning .", "Philip saw the purple one this morning ."),
        ("Lucy had wore the silly one this morning .", "Lucy had worn the silly one this morning ."),
    ],
    "quantifiers-superlative": [
        ("no rabbit might love at most four blankets .", "no rabbit might love fewer than four blankets ."),
        ("no tiger must like at least ten ladders .", "no tiger must like more than ten ladders ."),
    ],
}


@pytest.mark.slow
def test_the_first_two_pairs_of_each_paradigm():
    assert list(g.grammar().pairs) == list(BY_HAND)
    for paradigm, wanted in BY_HAND.items():
        assert g.pairs(paradigm, 2) == wanted


@pytest.mark.slow
def test_pairs_are_different_and_none_stands_in_the_text():
    text, known = set(g.text().splitlines()), set(g.grammar().vocabulary)
    for paradigm in g.grammar().pairs:
        found = g.pairs(paradigm, 500)
        assert len(set(found)) == 500
        assert found[:100] == g.pairs(paradigm, 100)
        for pair in found:
            assert text.isdisjoint(pair)
            assert all(set(sentence.split()) <= known for sentence in pair)
            assert len({len(sentence.split()) for sentence in pair}) == 1  # a sum of logarithms favours neither


@pytest.fixture
def small(monkeypatch):
    """Another grammar; its text is not kept in place of the text."""
    monkeypatch.setattr(g, "grammar", lambda: g.Grammar(SMALL))
    monkeypatch.setattr(g, "text", g.text.__wrapped__)


@pytest.mark.usefixtures("small")
def test_more_pairs_than_there_are_is_said():
    with pytest.raises(BadValue, match=r"^the grammar has 8 pairs of number, fewer than 9\.$"):
        g.pairs("number", 9)
    assert len(g.pairs("number", 8)) == 8


@pytest.mark.usefixtures("small")
def test_pairs_of_which_a_sentence_is_in_the_text_are_left_out(monkeypatch):
    one, other, *rest = g.pairs("number", 8)
    monkeypatch.setattr(g, "text", lambda: f"{one[0]}\n{other[1]}\n")
    known = {one[0], other[1]}
    assert g.pairs("number", 4) == [pair for pair in rest if known.isdisjoint(pair)][:4]


def test_the_text_is_the_same_everywhere():
    assert hashlib.sha256(g.text().encode()).hexdigest()[:12] == "86eccda26202"
    assert len(g.text().splitlines()) == g.SENTENCES


def test_words_are_read_and_spelled():
    found = corpus("grammar")
    assert found.vocabulary == len(g.grammar().vocabulary) + 1 == found.mask + 1
    # Another list of words numbers them anew, also where the text stays: runs are told apart by both.
    named = g.text() + " ".join(g.Words().names)
    assert found.sha == hashlib.sha256(named.encode()).hexdigest()
    said = "the dog runs .\ndo mice sing ?\n"
    assert found.bytes_of(found.ids(said)).decode() == said
    assert found.ids("the unicorn runs .") is None
    assert found.spelled(found.ids(said)[:5]) == "the dog runs .↵"
    assert corpus("").ids("ab\n") == [97, 98, 10]
    whole = found.bytes_of(found.held_out[0].tolist()).decode()
    assert whole in g.text()
    mean = sum(len(found.bytes_of(span.tolist())) for span in found.held_out) / sum(map(len, found.held_out))
    assert found.bytes_a_token == pytest.approx(mean)


@pytest.mark.parametrize("name", ["text", "masked-text"])
def test_it_is_a_text_of_both_tasks(name):
    task = tasks.build(tasks.pinned(f"{name}:file=grammar"))
    assert f"sha={corpus('grammar').sha[:12]}" in tasks.pinned(f"{name}:file=grammar")
    prompt = task.sample(stream(0, "x"), 50, 20)
    mask = corpus("grammar").mask
    assert bool((prompt.tokens == mask).any()) == (name == "masked-text")
    assert bool((prompt.targets < mask).all())
    assert task.outputs == task.vocabulary == mask + 1
    known = task.references()["unigram"](prompt)
    assert torch.isfinite(known).all()


def test_a_file_of_that_name_is_read_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grammar").write_text("x" * 1000)
    assert corpus("./grammar").vocabulary == 256
    assert corpus("grammar").vocabulary > 500
