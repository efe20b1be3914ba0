"""What a task cannot be or cannot draw is refused in one line before anything is trained."""

import pytest

from icl_lab.base.errors import LabError
from icl_lab.runs.spec import resolve

OPTIONS = {
    "evry": "Did you mean 'every'",
    "every:balance=full": "balance must be none, half",
    "linear:noise=1": "takes no option 'noise'",
    "linear:spread=0.5": "spread must be from 1 to 1e6, got 0.5",
    "linear:spread=nan": "spread must be a finite number",
    "linear:spread=1e9": "spread must be from 1 to 1e6",
    "needle:keys=1,distractors=bindings": "keys of 2 or more",
    "needle:answer=8": "answer must be 1 to 7",
    "recall:symbols=7": "even, at least 8 .* got 7",
    "recall:symbols=200000": "at most 100,000",
    "recall:updates=-1": "updates must be at least 0",
    "recall:law=zoology,updates=1": "law=zoology knows no updates, got 1",
    "recall:power=0": "power must be above 0",
    "recall:power=1.5": "power must be above 0 and at most 1 .*, got 1.5",
    "recall:updates=8": "symbols=20 name keys and values of up to 2 pairs, got 16",
    "masked-text:share=0": "share is a percentage above 0, at most 100, got 0",
    "masked-text:share=101": "at most 100, got 101",
    "masked-text:random=60,unmasked=50": "at most 100 percent of the asked places, got 110",
    "masked-text:unmasked=-1": "unmasked is a percentage, at least 0, got -1",
    "selective-copy:symbols=3": "must be",
    "compression:places=6": "must be",
    "fuzzy-recall:symbols=9": "must be",
    "memorization:symbols=4": "must be",
    "complement:symbols=24": "must be",
    "markov:k=1": "k must be at least 2 and at most 256 states, got 1",
    "markov:k=257": "k must be at least 2 and at most 256 states, got 257",
    "maximum:classes=1": "classes must be at least 2 and at most 100,000",
    "maximum:classes=200000": "classes must be at least 2 and at most 100,000",
    "regression:dim=0": "dim must be at least 1 and at most 1,000, got 0",
    "regression:tasks=2000000": "tasks must be 0 .* up to 1,048,576, got 2000000",
    "regression:noise=-1": "noise must be at least 0 and at most 100, got -1",
    "regression:dim=5,sparse=5": "sparse must be 0 .* below dim=5, got 5",
    "regression:functions=new": "functions=new is for a number of tasks.*, got tasks=0",
    "regression:shift=all,shifted=always": "shifted=always is for one shift, got shift=all",
    "regression:shifted=always": "shifted=always is for one shift, got shift=none",
    "regression:dim=1,shift=orthogonal": "shift=orthogonal needs dim of 2 or more, got 1",
    "regression:function=classification,shift=noise": "classes have no noise, got shift=noise",
    "regression:function=classification,noise=1": "classes have no noise, got noise=1",
    "regression:function=relu,tasks=4": "function=linear alone has sparse weights and a number of tasks",
    "regression:function=relu,hidden=0": "hidden must be at least 1",
    "regression:hidden=8": "hidden is for function=relu, got function=linear",
    "regression:function=tree,depth=40": "depth must be at least 1 and at most 12, got 40",
    "regression:trees=greedy": "trees are references of function=tree, got function=linear",
    "regression:law=student": "law=student is one of noise, got noise=0",
    "digits:patch=3": "patch=3 does not divide images of 8 x 8 pixels: take 1, 2, 4, 8",
    "digits:patch=0": "patch must be at least 1",
}
SETTINGS = [
    ("linear", "train.shift.sigma_x=-1", "finite and > 0"),
    ("linear", "train.shift.sigma_y=2", "sigma_f"),
    ("recall", "train.shift.pairs=2.5", "pairs must be a whole number"),
    ("recall", "test.axes.pairs=4,9", "9 pairs and their questions need 36 tokens or more, got 32"),
    ("recall:symbols=16", "test.axes.pairs=4,8", "symbols=16 name keys and values of up to 7 pairs, got 8"),
    ("recall:updates=2", "test.axes.pairs=2", "pairs must be more than updates=2, got 2"),
    ("flip-flop", "test.axes.ignored=120", "ignored is a percentage, at most 100, got 120"),
    ("trigger", "test.axes.depth=101", "depth is a percentage, at most 100, got 101"),
    ("digits", "test.axes.length=20", "have 4 x 4 patches: length is 16, got 20"),
    ("digits", "train.curriculum.stop=17", "length is 16, got 17"),
    ("digits", "test.axes.translation=1.5", "translation is whole pixels, at most 7, got 1.5"),
    ("digits", "train.shift.translation=8", "translation is whole pixels, at most 7, got 8"),
    ("digits", "test.axes.contrast=0", "contrast must be finite and > 0, got '0'"),
    ("digits", "train.shift.contrast=0", "contrast must be finite and > 0, got '0'"),
    ("digits", "test.axes.noise=-1", "noise must be finite and > 0, or 0 where"),
    ("digits", "train.shift.noise=-1", "shift.noise must be finite and > 0, or 0 where"),
    ("lookup", "test.axes.length=12", "a third of the length, got 8 in 12 tokens"),
    ("lookup", "train.curriculum.start=11", "got 4 in 11 tokens"),
    ("lookup", "train.shift.pairs=6", "got 6 in 16 tokens"),
    ("needle", "train.curriculum.start=5", "needs prompts of 6 or more, got 5"),
    ("linear", "test.axes.length=3", r"must be whole numbers >= 4 .*, got 3"),
    ("linear", "model.mask=full", r"model\.mask=full would show the tokens of linear their own answers"),
    ("text", "model.mask=full", "it is for .*masked-text"),
    ("linear", "test.draws=paper test.axes.sigma_f=1.5", r"whole sigmas, got 1\.5"),
    ("every:balance=half", "test.draws=paper", "is not balanced"),
    ("needle", "test.draws=paper", "no published evaluation set"),
    ("needle:answer=3", "train.curriculum.start=8 train.curriculum.stop=8", "prompts of 12 or more, got 8"),
    ("needle-vectors", "train.curriculum.start=2", "a length of 3 or more, got 2"),
    ("needle-vectors", "test.axes.length=2", "a length of 3 or more, got 2"),
]
CASES = [*((choice, "", words) for choice, words in OPTIONS.items()), *SETTINGS]


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(("choice", "setting", "words"), CASES)
def test_what_a_task_cannot_be_or_draw_is_refused(choice, setting, words):
    with pytest.raises(LabError, match=words) as refused:
        resolve(choice, "softmax", "smoke" if choice == "lookup" else "nano", setting.split())
    assert "\n" not in str(refused.value)
