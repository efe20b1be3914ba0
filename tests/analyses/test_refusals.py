"""What an analysis cannot be asked of a run is refused before anything is trained."""

import math

import pytest

from icl_lab import analyses
from icl_lab.analyses import runner
from icl_lab.base.errors import BadValue
from icl_lab.runs.spec import resolve

NEEDLE = "needle:alphabet=4,keys=2"
NO_ATTENTION, SHORT, FREE = ("model.attention=no",), ("test.axes.length=5,12",), ("attn=ssmax-free",)
CASES = [  # the analysis, its options, the task, settings, and what is said
    ("boundary", {"contexts": 8}, "linear", (), "at least 16 contexts, got 8"),
    ("boundary", {"contexts": 10**9}, "linear", (), "contexts must be at most 4,096, got 1,000,000,000"),
    ("boundary", {"reach": 5.0}, "linear", (), "at least 6 times the spread of training y, 8.49, got 5"),
    ("boundary", {"reach": math.nan}, "linear", (), "must be finite"),
    ("boundary", {"slopes": (1e-30,)}, "linear", (), "must be at most 1e[+]15, got 1e[+]33"),
    ("boundary", {"reach": 1e30}, "linear", (), "must be at most 1e[+]15, got 1e[+]30"),
    ("boundary", {}, "every", (), "every has no prompts of y = a x"),
    ("context", {}, "every", ("test.axes.length=8,16",), "no prompt of it; take text or linear"),
    ("context", {}, "linear", ("test.axes.length=12",), "at least two lengths, got 12"),
    ("context", {"lengths": (128, 10**5)}, "text", ("test.axes.length=128,256",), "too few for windows of 100,000"),
    ("deviant", {"position": (0, 11)}, "linear", SHORT, "index from 0 to 10, so that answers follow; got 11"),
    ("deviant", {"position": ()}, "linear", SHORT, "one index or more, got none"),
    ("deviant", {}, "needle", (), "needle has no number that can be stretched"),
    ("deviant", {}, "sine", (), "sine has no number that can be stretched; tasks that have: every, linear, some"),
    ("deviant", {"factors": (0.0,)}, "linear", SHORT, "a factor must be finite and > 0, got 0"),
    ("equivariance", {}, "every:balance=half", (), "every does not scale with its labels; tasks whose truth does: lin"),
    ("equivariance", {}, "regression:function=classification", (), "the truth of regression does not scale"),
    ("equivariance", {"scales": (1.0,)}, "linear", (), "by scales other than 1, got none"),
    ("equivariance", {"scales": (0.0, 10.0)}, "linear", (), "scales must be at least 1e-06, got 0"),
    ("heads", {}, "linear", NO_ATTENTION, "a model without attention has no heads to look at"),
    ("law", {}, "linear", ("attn=ssmax",), "only ssmax-free learns a factor for every n, got ssmax"),
    ("law", {}, "linear", (*FREE, "train.switch_step=52", "train.switch_to=ssmax"), "only ssmax-free .*, got ssmax"),
    ("law", {}, "linear", (*FREE, *NO_ATTENTION), "a model without attention has no factor"),
    ("law", {}, "linear", (*FREE, "train.curriculum.start=2", "train.curriculum.stop=2"), "7 tokens or more, got"),
    *(("learning", {"shares": s}, "linear", (), "shares are above 0 and at most 1") for s in ((), (0.0,), (1.5,))),
    ("needle", {}, "linear", (), "linear has no answer that stands in its context, for needle scores; tasks that have"),
    ("needle", {"length": 4}, NEEDLE, (), "a needle of 2 tokens needs prompts of 6 or more, got 4"),
    ("needle", {}, NEEDLE, NO_ATTENTION, "a model without attention has no heads to score"),
    ("needle", {}, NEEDLE, ("model.positions=learned:rows=128", "test.axes.length=64"), "more than the 128 places"),
    ("per-position", {}, "linear", ("train.curriculum.stop=12", *SHORT), "need a length above 12, got 12"),
    ("per-position", {}, "needle", ("test.axes.length=64,128",), "asks a prompt once"),
    ("per-position", {"length": 10**5}, "text", ("test.axes.length=128,256",), "too few for windows of 100,000"),
    ("printed-bounds", {}, "linear", (), "published functions"),
    ("probe", {}, "linear", (), "linear has no answer to a single number; tasks that have: every, some"),
    ("probe", {"position": 99}, "every", (), "at an index from 0 to 39, got 99"),
    *(("probe", {"factors": (f,)}, "every", (), "a factor must be finite and > 0, got") for f in (-1.0, 0.0)),
    ("probe", {"factors": (math.inf,)}, "every", (), "factors must be finite, got inf"),
    ("saturation", {}, "needle", (), "needle has no number that can be stretched"),
    ("saturation", {}, "linear", NO_ATTENTION, "a model without attention has no heads to saturate"),
    ("saturation", {"position": 40}, "linear", (), r"an index from 0 to 39, or at -1 \(the query\), got 40"),
    ("saturation", {"position": -2}, "linear", (), r"or at -1 \(the query\), got -2"),
    ("saturation", {"position": 4, "length": 4}, "linear", (), "at an index from 0 to 3, .* got 4"),
    ("saturation", {"length": 1}, "linear", (), "length must be at least 2, got 1"),
    ("saturation", {"factors": (1.0,)}, "linear", (), "a number grows by factors other than 1"),
    ("saturation", {"factors": ()}, "linear", (), "a number grows by factors other than 1"),
    ("saturation", {"factors": (0.0,)}, "linear", (), "a factor must be finite and > 0, got 0"),
    ("theory", {"reach": 9.0}, "linear", (), "reach must be at most 8, got 9"),
    ("theory", {"keys": ()}, "linear", (), "name at least one number of keys"),
    ("theory", {}, "linear", ("attn=sigmoid",), "the bounds are about"),
]


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(("name", "options", "task", "settings", "message"), CASES)
def test_senseless_questions_are_refused(lab, name, options, task, settings, message):
    attn, *_ = [each.removeprefix("attn=") for each in settings if each.startswith("attn=")] or ["softmax"]
    spec = resolve(task, attn, "smoke", [each for each in settings if not each.startswith("attn=")])
    with pytest.raises(BadValue, match=message) as refused:
        runner.checked(analyses.registry.part(name)(**options), {attn: [lab.store.run(spec, 0)]})
    assert "\n" not in str(refused.value)
    assert not lab.store.root.exists()
