"""What of the models a page shows, and what it cannot."""

import pytest

from icl_lab.analyses.attention import prompt
from icl_lab.base.errors import BadValue
from icl_lab.runs.spec import resolve


def test_what_a_page_cannot_show_is_refused(runs_of, lab):
    runs = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2,3,70", runs[0].spec)
    for words, complaint in (
        ({"layers": "1"}, "no layer '1': layers are counted from 0 to 0"),
        ({"heads": "0,-1"}, "no head '-1': heads are counted from 0 to 1"),
        ({"heads": "first"}, "no head 'first'"),
    ):
        with pytest.raises(BadValue, match=complaint):
            prompt.choose(runs[:1], asked, **words)
    wider = runs_of("ssa", settings=["model.heads=4"])
    with pytest.raises(BadValue, match="same layers x heads, got 1 x 2 and 1 x 4"):
        prompt.choose([runs[0], *wider], asked)
    other = runs_of("ssa", task="some")
    with pytest.raises(BadValue, match="read one prompt, got the tasks every and some"):
        prompt.choose([runs[0], *other], asked)
    far = prompt.read("random:length=1000", resolve("every", "softmax", "smoke", ["model.positions=none"]))
    with pytest.raises(BadValue, match="too long: 1000 examples"):  # the other run has a learned code
        prompt.choose([*runs_of("ssa", settings=["model.positions=none"]), runs[0]], far)
    assert not lab.store.root.exists()


def test_too_many_cells_are_refused_with_a_hint(runs_of, lab):
    (run,) = runs_of("softmax", settings=["model.positions=none"])
    asked = prompt.read("random:length=800", run.spec)
    with pytest.raises(BadValue, match=r"5,113,602 cells .* 4,000,000 .* --layers 0 or --heads 0,1 .* --last 32"):
        prompt.choose([run], asked)
    assert prompt.choose([run], asked, heads="1").cells(1599) == 1599**2
    assert prompt.choose([run], asked, last=32).cells(1599) == 2 * 32 * 1599
    assert not lab.store.root.exists()


def test_two_runs_have_half_the_cells_each(runs_of, monkeypatch):
    softmax, ssa = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2", softmax.spec)
    cells = prompt.choose([softmax], asked).cells(3)
    monkeypatch.setattr(prompt, "CELLS", 2 * cells - 1)
    prompt.choose([softmax], asked)
    with pytest.raises(BadValue, match=f"{2 * cells} cells"):
        prompt.choose([softmax, ssa], asked)
