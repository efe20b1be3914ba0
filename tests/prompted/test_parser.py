"""BatchAnswers are read strictly: the answer and nothing else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.extras.prompted import parser

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault
settings.load_profile("untimed")
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**9), 10**9).map(float))
WAYS = st.sampled_from(["{:.2f}", "{:+.3f}", "{:.0f}", "{!r}", "{:e}", "{:E}"])
SAID = ["", "answer: ", "Answer:", "#Answer: ", "# answer: ", "The answer is ", "Output: ", "y = ", "final answer: "]
LABELS = st.sampled_from(SAID)
AROUND = st.sampled_from(["{}", "  {} ", "{}.", "**{}**", "`{}`", "```{}```", "\n{}\n", '"{}"'])


@given(NUMBERS, WAYS, LABELS, AROUND, st.booleans())
def test_a_number_is_read_however_it_is_written(value, way, label, around, print_minus):
    text = way.format(value)
    said = around.format(label + text)
    if print_minus:
        said = said.replace("-", "\u2212")
    assert parser.parse_number(said) == float(text)


@given(NUMBERS, NUMBERS, WAYS, st.sampled_from([" ", ", ", "/", " or ", " to ", "\n", " = ", "; ", " x "]))
def test_two_numbers_are_none(one, other, way, between):
    assert parser.parse_number(way.format(one) + between + way.format(other)) is None


@given(NUMBERS, WAYS, st.text(st.characters(categories=["L"]), min_size=1, max_size=12))
def test_words_around_a_number_make_it_none(value, way, words):
    text = way.format(value)
    assert parser.parse_number(f"{text} {words}") is None
    if not parser.LABEL.fullmatch(f"{words} "):
        assert parser.parse_number(f"{words} {text}") is None


@given(st.text())
def test_whatever_is_said_is_a_finite_number_or_none(said):
    value = parser.parse_number(said)
    assert value is None or math.isfinite(value)


NUMERALS = {"1": 1, "-1.5": -1.5, "+2": 2, "1e3": 1000, "−1": -1, "answer: 3.2.": 3.2, "3.": 3, ".5": 0.5, "007": 7}
NONE = "1,000|1,000?|1.000,5|1 000|1_000|1/2|50%|3 cm|$5|NaN|nan|inf|-Infinity|1e999|--1|- 1|±1|1..|1.2.3|0x10|٣|²||.|-"
NONE += "|three|about 3|3?|3!|answer: 3 answer: 4|<think>3</think>3|x = 2, y = 3|[3]"


@pytest.mark.parametrize(("said", "value"), [*NUMERALS.items(), *((said, None) for said in NONE.split("|"))])
def test_what_is_a_number_and_what_is_none(said, value):
    assert parser.parse_number(said) == value


WORDS = ["False", "True"]


@given(st.sampled_from(WORDS), LABELS, AROUND, st.sampled_from([str, str.lower, str.upper]))
def test_a_choice_is_read_whatever_its_case(word, label, around, case):
    assert parser.parse_choice(around.format(label + case(word)), WORDS) == word


@pytest.mark.parametrize(
    "said", ["", "True False", "Truee", "not True", "True, because", "1", "yes", "[True]", "T", "0"]
)
def test_what_is_no_choice(said):
    assert parser.parse_choice(said, WORDS) is None


def test_choices_that_differ_in_their_case_are_kept_apart():
    assert parser.parse_choice("a", ["a", "A"]) == "a"
    assert parser.parse_choice("A", ["a", "A"]) == "A"
    assert parser.parse_choice("c1", ["c1", "c10"]) == "c1"
    assert parser.parse_choice("B", ["a", "b"]) == "b"


def test_an_answer_longer_than_any_form_is_not_read():
    """Signs around signs were taken off one by one, each time with a copy of the rest."""
    assert parser.parse_number("`" * 9 + "1" + "`" * 9) == 1
    assert parser.parse_number("`" * 999 + "1" + "`" * 999) is None
    assert parser.parse_choice("answer: " * 999 + "True", ["False", "True"]) is None
    assert parser.parse_number(" " * 9999 + "1") == 1


def test_an_answer_of_the_greatest_length_is_read():
    assert parser.parse_number(f" {'0' * (parser.LONGEST - 1)}7 ") == 7
    assert parser.parse_number(f"{'0' * parser.LONGEST}7") is None
