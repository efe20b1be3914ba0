"""Contract checks of tasks. Each takes a choice such as ``every:balance=half``.

A check raises ``AssertionError`` with a sentence on the fault; a task passes when none does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from icl_lab import tasks
from icl_lab.base.errors import BadValue, LabError, UnknownOption
from icl_lab.base.rng import stream
from icl_lab.runs.measure import NOT_FINITE, Subject, TestSpec, judged, measure
from icl_lab.runs.spec import resolve
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.capabilities import Rescalable
from icl_lab.testing.base import hold

PROMPTS = 24


def draws_have_the_declared_shapes(choice: str) -> None:
    """Tokens, targets and scored have the declared shapes and kinds, and each prompt asks something."""
    for task, prompt, length in _suites(choice):
        shape = (PROMPTS, task.tokens(length))
        wanted = shape if task.vocabulary else (*shape, task.width)
        hold(tuple(prompt.tokens.shape) == wanted, f"tokens are {tuple(prompt.tokens.shape)}, declared {wanted}")
        hold(tuple(prompt.targets.shape) == shape, f"targets are {tuple(prompt.targets.shape)}, not {shape}")
        hold(prompt.scored.dtype == torch.bool, f"scored holds {prompt.scored.dtype}, not bool")
        hold(bool(prompt.scored.any(1).all()), "a prompt has no scored token")
        kind = torch.int64 if task.vocabulary else torch.float32
        hold(prompt.tokens.dtype == kind, f"tokens are {prompt.tokens.dtype}, not {kind}")
        if task.vocabulary:
            low, high = int(prompt.tokens.min()), int(prompt.tokens.max())
            hold(low >= 0 and high < task.vocabulary, f"tokens {low} to {high} leave 0 to {task.vocabulary - 1}")


def an_address_repeats_its_draws(choice: str) -> None:
    """Draw depend on the generator alone, and two addresses differ."""
    task, prompt, length = next(_suites(choice))
    torch.rand(1)  # the global generator has moved on
    again, other = task.sample(stream(0, "contract"), PROMPTS, length), task.sample(stream(1, "x"), PROMPTS, length)
    for part in ("tokens", "targets", "scored"):
        hold(torch.equal(getattr(prompt, part), getattr(again, part)), f"{part} differ between two equal draws")
    hold(not torch.equal(prompt.tokens, other.tokens), "two addresses draw the same tokens")


def a_shift_adds_no_draws(choice: str) -> None:
    """A shift uses up as many random numbers as any other, that of training is the default, unknown axes are refused.

    Of a facet training draws every value, so that none of them is the default.
    """
    task, prompt, length = next(_suites(choice))
    for axis, values in task.axes["tiny"].items():
        if axis == "length":
            continue
        used = [_after(task, length, **{axis: float(value)}) for value in values]
        hold(all(torch.equal(used[0], each) for each in used), f"values of {axis} use up different random numbers")
        if axis not in task.facets:
            usual = {axis: task.training[axis]}
            same = task.sample(stream(0, "contract"), PROMPTS, length, **usual)
            hold(torch.equal(same.tokens, prompt.tokens), f"{axis} as in training is not what is drawn by default")
    try:
        task.sample(stream(0, "contract"), 1, length, no_such_axis=1.0)
    except UnknownOption:
        return
    raise AssertionError(f"{choice}: an unknown axis is not refused with UnknownOption (call self.sigmas(shift))")


def a_prefix_is_scored_as_the_whole(choice: str) -> None:
    """Check, where shorter prompts are prefixes: cutting a prompt changes no error and no reference before the cut."""
    task, prompt, length = next(_suites(choice))
    if not task.prefixes:
        return
    t = task.tokens(length - 1)
    cut, outputs = prompt.first(t), _outputs(task, prompt)
    whole, part = task.errors(outputs, prompt), task.errors(outputs[:, :t], cut)
    hold(torch.equal(whole[:, : part.shape[1]], part), "errors before a cut hang on what comes after it")
    for name, predict in task.references().items():
        before, after = predict(prompt)[:, :t][cut.scored], predict(cut)[cut.scored]
        same = torch.allclose(before, after, rtol=1e-3, atol=1e-4, equal_nan=True)
        hold(same, f"the reference {name} answers a cut prompt otherwise than the whole")


def a_suffix_is_scored_as_the_whole(choice: str) -> None:
    """Check, where the last examples are a prompt: leaving out the first one changes no error of later answers."""
    task, prompt, length = next(_suites(choice))
    if not task.suffixes:
        return
    t = task.tokens(length - 1)
    cut, outputs = prompt.last(t), _outputs(task, prompt)
    whole, part = task.errors(outputs, prompt), task.errors(outputs[:, -t:], cut)
    hold(torch.equal(whole[:, -part.shape[1] :], part), "errors after a cut hang on what came before it")


def scored_tokens_decide(choice: str) -> None:
    """Loss and errors read every scored token and no other; the loss is finite and has a gradient."""
    for task, prompt, length in _suites(choice):
        outputs = _outputs(task, prompt).requires_grad_()
        loss = task.loss(outputs, prompt)
        hold(loss.ndim == 0 and bool(loss.isfinite()), f"the loss is no finite scalar: {loss}")
        (gradient,) = torch.autograd.grad(loss, outputs)
        moved = gradient.abs().sum(2) > 0
        hold(not bool((moved & ~prompt.scored).any()), "the loss reads a token that is not scored")
        hold(bool((moved & prompt.scored).any(1).all()), "the loss of a prompt has no gradient at its scored tokens")
        computed = torch.zeros_like(prompt.scored)
        computed[:, task.answers] = True
        hold(not bool((prompt.scored & ~computed).any()), "a scored token lies outside `answers`: it has no output")
        with torch.no_grad():
            errors = task.errors(outputs, prompt)
            noise = torch.where(prompt.scored.unsqueeze(2), outputs, outputs + 1e3)
            same = torch.equal(errors.nan_to_num(7), task.errors(noise, prompt).nan_to_num(7))
        hold(same, "errors read a token that is not scored")
        counts = prompt.scored.sum(1)
        if errors.shape == prompt.scored.shape:
            hold(not bool(errors[prompt.scored].isnan().any()), "an error of a finite answer is NaN")
        else:
            fits = errors.shape[0] == len(counts) and bool((counts == errors.shape[1]).all())
            hold(fits, f"errors {tuple(errors.shape)} are neither (b t) nor a column for each scored token")
        with_rows = {str(task.asked(length))} if _fixed(task, length) else set()
        hold(with_rows <= {str(prompt.scored[0].nonzero().flatten().tolist())}, "`asked` are not the scored tokens")


def views_have_the_headline(choice: str) -> None:
    """Each view is (b) or (b g), and the headline, ``beside`` and ``medians`` are among those of the suites."""
    names: set[str] = set()
    for task, prompt, _ in _suites(choice):
        outputs = _outputs(task, prompt)
        views = task.views(task.errors(outputs, prompt), prompt) | task.confidence(outputs, prompt)
        for name, values in views.items():
            hold(values.ndim in (1, 2) and len(values) == PROMPTS, f"{name} is {tuple(values.shape)}, not (b) or (b g)")
        names |= set(views)
    task = tasks.build(choice)
    missing = {task.headline, *task.beside, *task.medians} - names
    hold(not missing, f"no view is called {', '.join(sorted(missing))}; there are {', '.join(sorted(names))}")


def references_answer_every_scored_token(choice: str) -> None:
    """References give outputs (b t c) that are finite where they are scored."""
    for task, prompt, _ in _suites(choice):
        for name, predict in task.references().items():
            outputs, wanted = predict(prompt), (*prompt.targets.shape, task.outputs)
            hold(tuple(outputs.shape) == wanted, f"the reference {name} gives {tuple(outputs.shape)}, not {wanted}")
            hold(bool(outputs[prompt.scored].isfinite().all()), f"the reference {name} is not finite at a scored token")


def declarations_agree(choice: str) -> None:
    """Axes, picture, summary, clip axis, facets and labels name axes that there are, and presets resolve."""
    task = tasks.build(choice)
    hold(set(task.axes) == {"full", "thin", "tiny"}, f"axes come full, thin and tiny, not {', '.join(task.axes)}")
    axes = list(task.axes["full"])
    hold(all(list(grid) == axes for grid in task.axes.values()), "full, thin and tiny have different axes")
    hold("length" in axes and len(axes) > 1, f"an axis beside length is needed, there is {', '.join(axes)}")
    hold([*task.training, "length"] == axes, "`axes` are not those of `training` and then length")
    for axis, grid in product(task.training, task.axes.values()):
        hold(task.training[axis] in grid[axis], f"no tested value of {axis} is that of training")
    hold(task.heat_map[0] != task.heat_map[1], "heat_map names one axis twice")
    clip = (task.clip.axis,) if task.clip else ()
    named = {*task.heat_map, task.summary.axis, task.line_axis, *clip, *task.facets, *task.axis_labels}
    hold(named <= set(axes), f"{', '.join(sorted(named - set(axes)))} is declared somewhere and is no axis")
    if task.summary.kind == "range":
        ends = {task.summary.low, task.summary.high}
        hold(ends <= set(task.axes["full"][task.summary.axis]), "the full grid lacks an end of the summary's range")
    for preset in ("smoke", "lite", "paper"):
        try:
            resolve(choice, "softmax", preset)
        except LabError as error:
            raise AssertionError(f"{choice}: preset {preset} does not resolve: {error}") from error


def lengths_that_pass_can_be_drawn(choice: str) -> None:
    """Every length that ``check_length`` lets through can be drawn, up to the shortest tested length."""
    task, _, length = next(_suites(choice))
    for each in range(1, length + 1):
        try:
            task.check_length(each)
        except BadValue:
            continue
        t = task.sample(stream(0, "contract"), 2, each).targets.shape[1]
        hold(t == task.tokens(each), f"a prompt of length {each} has {t} tokens, declared {task.tokens(each)}")


def no_number_is_no_answer(choice: str) -> None:
    """An answer that is NaN or infinite counts as the worst, every prompt counts, and the cell is marked."""
    task, _, length = next(_suites(choice))
    axes = {axis: [value] for axis, value in task.training.items()} | {"length": [float(length)]}
    finite = {"x": Subject(lambda prompt: _outputs(task, prompt))}
    for bad in (math.nan, math.inf):
        lost = {"x": Subject(lambda prompt, bad=bad: torch.full((*prompt.targets.shape, task.outputs), bad))}  # type: ignore[misc]
        rows, usual = (
            {row["metric"]: row for row in measure(who, task, TestSpec(prompts=64, axes=axes)).cells}
            for who in (lost, finite)
        )
        row = rows[task.headline]
        hold(row["value"] == task.worst, f"{task.headline} is {row['value']} where no answer is a number")
        hold(row["count"] == usual[task.headline]["count"], "prompts whose answer is no number are left out")
        marks = {name: row["value"] for name, row in rows.items() if name.endswith(NOT_FINITE)}
        hold(set(marks.values()) == {1.0}, f"the cell is not marked by {NOT_FINITE}")
        hold(NOT_FINITE not in usual, "a cell of finite answers is marked")
    prompt = task.sample(stream(0, "contract"), PROMPTS, length)
    outputs = _outputs(task, prompt)
    outputs[0] = math.nan
    errors, before = judged(task, outputs, prompt), task.errors(_outputs(task, prompt), prompt)
    hold(torch.equal(errors[1:].nan_to_num(7), before[1:].nan_to_num(7)), "one bad prompt changes errors of others")


def words_name_each_token(choice: str) -> None:
    """``marks`` names every token and ``words`` each answer, or both refuse with ``BadValue``."""
    task, prompt, _ = next(_suites(choice))
    try:
        marks, answers = wording.marks(task, prompt), wording.answered(task, _outputs(task, prompt), prompt)
    except BadValue:
        return
    hold(len(marks) == prompt.targets.shape[1], f"{len(marks)} marks for {prompt.targets.shape[1]} tokens")
    asked = prompt.scored[0].nonzero().flatten().tolist()
    hold([answer.token for answer in answers] == asked, "the table of answers has other tokens than those scored")
    hold(all(isinstance(word, str) for answer in answers for word in (answer.answer, answer.truth)), "words are text")


def a_rescaling_keeps_the_truth(choice: str) -> None:
    """A rescaled prompt has the truth of the prompt over its factor, as the ``equivariant`` reference answers both.

    And it is causal: what comes after a token changes neither the token read nor the factor of its answer.
    """
    for task, _, length in _suites(choice):
        if not isinstance(task, Rescalable):
            return
        free = [axis for axis in task.axes["tiny"] if axis != "length" and axis not in task.facets]
        shift = {axis: float(max(task.axes["tiny"][axis])) for axis in free}
        prompt = task.sample(stream(0, "contract"), PROMPTS, length, **shift)
        predict = task.references()[task.equivariant]
        for part in task.rescales:
            rescale = task.rescaling(part)
            tokens, factor, start = rescale(prompt.tokens)
            hold(bool(tokens.isfinite().all()), f"{part} rescaled are not finite")
            scored = prompt.scored & (torch.arange(tokens.shape[1]) >= start)
            own, back = predict(prompt), predict(replace(prompt, tokens=tokens)) * factor
            same = torch.allclose(own[scored], back[scored], rtol=1e-3, atol=1e-3, equal_nan=True)
            hold(
                same,
                f"{task.equivariant} answers prompts with {part} rescaled, times the factor, otherwise than before",
            )
            for cut in range(start + 1, tokens.shape[1]):
                before, of_answer, _ = rescale(prompt.tokens[:, :cut])
                causal = torch.equal(before, tokens[:, :cut]) and torch.equal(of_answer, factor[:, :cut])
                hold(causal, f"{part} rescaled before token {cut} hang on what comes after it")


CHECKS: tuple[Callable[[str], None], ...] = (
    draws_have_the_declared_shapes,
    an_address_repeats_its_draws,
    a_shift_adds_no_draws,
    a_prefix_is_scored_as_the_whole,
    a_suffix_is_scored_as_the_whole,
    scored_tokens_decide,
    views_have_the_headline,
    references_answer_every_scored_token,
    declarations_agree,
    lengths_that_pass_can_be_drawn,
    no_number_is_no_answer,
    words_name_each_token,
    a_rescaling_keeps_the_truth,
)


def _suites(choice: str) -> Iterator[tuple[Task, Prompt, int]]:
    """Each test set of the task, some prompts of it, and their length: the shortest of the tiny grid."""
    for task in tasks.build(choice).suites().values():
        length = int(min(task.axes["tiny"]["length"]))
        yield task, task.sample(stream(0, "contract"), PROMPTS, length), length


def _outputs(task: Task, prompt: Prompt) -> Tensor:
    return torch.randn(*prompt.targets.shape, task.outputs, generator=stream(0, "outputs"))


def _after(task: Task, length: int, **shift: float) -> Tensor:
    """State of the generator after a draw."""
    rng = stream(0, "contract")
    task.sample(rng, PROMPTS, length, **shift)
    return rng.get_state()


def _fixed(task: Task, length: int) -> bool:
    try:
        task.asked(length)
    except BadValue:
        return False
    return True
