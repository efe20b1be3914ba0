"""Budgets are hard, whatever is under way."""

import threading

import pytest

from icl_lab.prompted.budget import Budget, about_tokens, most_tokens
from icl_lab.prompted.formats import Sent
from icl_lab.prompted.question import Cell, Question


def test_no_request_beyond_the_bound():
    budget = Budget(requests=3, tokens=10**9)
    assert [budget.take(1) for _ in range(5)] == [True, True, True, False, False]
    budget.settle(1, 1)
    assert not budget.take(1)  # a request that is over stays counted


def test_tokens_that_are_under_way_count_until_they_are_settled():
    budget = Budget(requests=10, tokens=100)
    assert budget.take(60)
    assert not budget.take(60)
    budget.settle(60, 10)
    assert budget.take(60)
    assert not budget.take(31)
    assert budget.spent_tokens == 10


def test_what_was_spent_before_counts():
    assert not Budget(requests=5, tokens=100, spent_requests=5).take(1)
    assert not Budget(requests=9, tokens=100, spent_requests=5, spent_tokens=100).take(1)


def test_many_threads_take_no_more_than_there_is():
    budget, taken = Budget(requests=50, tokens=10**9), []

    def work():
        taken.extend(budget.take(1) for _ in range(40))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 50


@pytest.mark.parametrize("text", ["0.52, -1.33", "True", "Zahlen ☃ folgen", ""])
def test_the_bound_of_a_request_is_above_any_tokenizer(text):
    asked = Question(Cell("", (), 5, 2), 0, 1, 0, Sent(messages=(("user", text),)), ())
    assert most_tokens(asked, 16) >= len(text.encode()) + 16


def test_an_estimate_counts_signs_digits_and_words():
    assert about_tokens("-0.51") == 4
    assert about_tokens("True") == 1
    assert about_tokens("x", messages=2) == 9
