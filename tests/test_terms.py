"""Terms of tables and reports are explained, and only those that stand there."""

from icl_lab import tasks
from icl_lab.base import terms


def test_every_reference_of_every_task_is_explained():
    names = {name for task in tasks.names() for name in tasks.build(task).references()}
    assert names - set(terms.REFERENCES) == set()


def test_a_text_without_terms_needs_no_explanation():
    assert terms.explained("| `ssa` | 0.1 |") == ""


def test_a_reference_from_outside_is_called_one():
    assert terms.explained("reference:mine").startswith("Words: reference: needs no training. More")


def test_a_table_of_factors_says_what_grows():
    assert terms.explained("| normalizer | x1 | x10 |").startswith("Words: deviant: the one number of a prompt")
    assert terms.explained("| normalizer | x1 |") == ""
