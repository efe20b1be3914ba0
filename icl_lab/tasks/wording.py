"""Tokens and answers in words: the task's own where it has ``marks`` and ``words``, else plain numbers."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.tasks.base import Mark, Prompt, ScoredAnswer, Task, plain


@runtime_checkable
class NamesTokens(Protocol):
    """Tasks that name their tokens."""

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Return the tokens of the first prompt in words."""


@runtime_checkable
class NamesAnswers(Protocol):
    """Tasks that name their answers."""

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """Outputs (b t c) -> the answer to the first prompt at token ``t`` and the truth, in words."""


def marks(task: Task, prompt: Prompt) -> list[Mark]:
    """Return the tokens of the first prompt in words; raises ``BadValue`` where they are not single numbers."""
    return task.marks(prompt) if isinstance(task, NamesTokens) else number_marks(task, prompt)


def number_marks(task: Task, prompt: Prompt) -> list[Mark]:
    """Return the tokens of the first prompt as the numbers x and y that they are; raises ``BadValue`` elsewhere."""
    roles = ("x", "y")[: task.roles]
    if task.width != 1 or task.vocabulary or len(roles) != task.roles:
        raise BadValue(f"{task.name} has no words for its tokens; give the task a method `marks` that names them.")
    return [
        Mark(roles[t % task.roles], t // task.roles + 1, plain(value), value)
        for t, value in enumerate(prompt.tokens[0, :, 0].tolist())
    ]


def words(task: Task, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
    """Outputs (b t c) -> the answer to the first prompt at token ``t`` and the truth, in words.

    Raises ``BadValue`` where answers are not single numbers.
    """
    if isinstance(task, NamesAnswers):
        return task.words(outputs, prompt, t)
    if task.outputs != 1 or task.width != 1 or task.vocabulary:
        raise BadValue(f"{task.name} has no words for its answers; give the task a method `words` that names them.")
    return number_words(outputs, prompt, t)


def number_words(outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
    """Outputs (b t 1) -> the answer and the truth at token ``t`` of the first prompt, as numbers."""
    return plain(outputs[0, t, 0].item()), plain(prompt.targets[0, t].item())


def answered(task: Task, outputs: Tensor, prompt: Prompt) -> list[ScoredAnswer]:
    """Outputs (b t c) -> the answers to the first prompt, token by token."""
    at = prompt.scored[0].nonzero().flatten().tolist()
    errors = task.errors(outputs, prompt)[0]
    own = errors[prompt.scored[0]] if len(errors) == len(prompt.scored[0]) else errors
    return [ScoredAnswer(t, *words(task, outputs, prompt, t), error) for t, error in zip(at, own.tolist(), strict=True)]
