"""The contract of tasks: every registered one, options of theirs, two examples from outside, and broken ones."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.tasks.base import Prompt, Summary
from icl_lab.testing.tasks import CHECKS

OPTIONS = [
    *(f"{name}:{option}" for name in ("every", "some") for option in ("balance=half", "labels=hidden")),
    "every:balance=half,labels=hidden",
    *("needle:answer=3,distractors=bindings", "needle:keys=1,alphabet=40", "needle-vectors:dim=1", "images:patch=4"),
    *("recall:updates=2", "recall:symbols=128,power=1", "markov:k=2", "maximum:classes=2", "complement:labels=next"),
    *("selective-copy:symbols=4", "compression:symbols=5,places=7", "fuzzy-recall:symbols=8", "memorization:symbols=5"),
    *("regression:dim=1", "regression:dim=8,tasks=16,noise=0.5", "regression:tasks=4,sparse=2,functions=new"),
    *("regression:shift=all", "regression:dim=1,tasks=4,shift=all", "regression:dim=5,shift=orthogonal"),
    *("regression:shift=quadrants,shifted=always", "regression:function=quadratic,noise=0.5,law=laplace"),
    *("regression:function=relu,hidden=8,layout=separate,dims=growing", "regression:function=tree,shift=skewed"),
    *("regression:function=classification,shift=all", "regression:noise=0.5,law=student"),
]
OUTSIDE = ["sine", "lookup", "lookup:keys=12"]


@pytest.mark.parametrize("choice", [*tasks.names(), *OPTIONS, *OUTSIDE])
def test_task_keeps_the_contract(choice, outside):
    for check in CHECKS:
        check(choice)


def broken(**changes):
    """The sine task with other attributes or methods, registered as ``broken``."""
    tasks.registry.add("broken")(type("Broken", (tasks.registry.part("sine"),), changes))


def one_more_draw(self, rng, prompts, length, **shift):
    if shift.get("frequency", 1) != 1:
        torch.rand(1, generator=rng)
    return tasks.registry.part("sine").sample(self, rng, prompts, length, **shift)


def global_draw(self, rng, prompts, length, **shift):
    prompt = tasks.registry.part("sine").sample(self, rng, prompts, length, **shift)
    return Prompt(prompt.tokens + torch.rand(1), prompt.targets, prompt.scored)


def any_axis(self, rng, prompts, length, **shift):
    known = {axis: value for axis, value in shift.items() if axis == "frequency"}
    return tasks.registry.part("sine").sample(self, rng, prompts, length, **known)


def short(self, rng, prompts, length, **shift):
    return tasks.registry.part("sine").sample(self, rng, prompts, length - 1, **shift)


BROKEN = {
    "other_width": ({"width": 2}, "draws_have_the_declared_shapes", r"declared \(24, 20, 2\)"),
    "no_vocabulary": ({"vocabulary": 5}, "draws_have_the_declared_shapes", "declared"),
    "global_generator": ({"sample": global_draw}, "an_address_repeats_its_draws", "tokens differ"),
    "a_draw_a_shift": ({"sample": one_more_draw}, "a_shift_adds_no_draws", "different random numbers"),
    "other_default": ({"training": {"frequency": 2.0}, "sigmas": lambda self, shift: [shift.get("frequency", 1)]},
                      "a_shift_adds_no_draws", "not what is drawn by default"),
    "any_axis": ({"sample": any_axis}, "a_shift_adds_no_draws", "not refused"),
    "error_from_later": ({"errors": lambda self, o, p: (o[:, ::2, 0] - p.targets[:, -1:]).square()},
                         "a_prefix_is_scored_as_the_whole", "hang on what comes after"),
    "error_from_earlier": ({"suffixes": True, "prefixes": False,
                            "errors": lambda self, o, p: (o[:, ::2, 0] - p.targets[:, :1]).square()},
                           "a_suffix_is_scored_as_the_whole", "hang on what came before"),
    "loss_of_all_tokens": ({"loss": lambda self, o, p: (o[..., 0] - p.targets).square().mean()},
                           "scored_tokens_decide", "reads a token that is not scored"),
    "loss_of_first_token": ({"loss": lambda self, o, p: o[0, 0, 0].square()}, "scored_tokens_decide", "no gradient"),
    "answers_elsewhere": ({"answers": slice(1, None, 2)}, "scored_tokens_decide", "outside `answers`"),
    "errors_elsewhere": ({"errors": lambda self, o, p: (o[:, 1::2, 0] - p.targets[:, ::2]).square()},
                         "scored_tokens_decide", "errors read a token"),
    "errors_summed": ({"errors": lambda self, o, p: o[:, :1, 0].square()}, "scored_tokens_decide", "neither"),
    "other_headline": ({"headline": "loss"}, "views_have_the_headline", "no view is called loss"),
    "wide_view": ({"views": lambda self, e, p, **shift: {"mse": e.mean()}}, "views_have_the_headline", r"not \(b\)"),
    "short_reference": ({"references": lambda self: {"zero": lambda p: p.targets}},
                        "references_answer_every_scored_token", "the reference zero gives"),
    "nan_reference": ({"references": lambda self: {"zero": lambda p: p.tokens * float("nan")}},
                      "references_answer_every_scored_token", "not finite"),
    "unknown_summary": ({"summary": Summary("phase", "range", 1, 4)}, "declarations_agree", "phase is declared"),
    "unreached_summary": ({"summary": Summary("frequency", "range", 1, 9)}, "declarations_agree", "lacks an end"),
    "untested_training": ({"training": {"frequency": 1.5}}, "declarations_agree", "no tested value"),
    "no_words": ({"marks": lambda self, p: []}, "words_name_each_token", "0 marks for 20 tokens"),
    "undrawn_length": ({"sample": short}, "lengths_that_pass_can_be_drawn", "declared 2"),
    "unknown_preset_field": ({"usual": {"train.start": "3"}}, "declarations_agree", "does not resolve"),
    "unmarked": ({"views": lambda self, e, p, **shift: {"mse": e.nan_to_num(0, 0, 0).mean(1)}},
                 "no_number_is_no_answer", "no answer is a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_task_fails_its_check(name, outside):
    changes, check, sentence = BROKEN[name]
    broken(**changes)
    with pytest.raises(AssertionError, match=sentence):
        next(each for each in CHECKS if each.__name__ == check)("broken")
