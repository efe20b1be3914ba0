"""Data of a live page apart from its models: the prompt as numbers, the question, and the form of answers."""

from collections.abc import Mapping, Sequence

import torch

from icl_lab.analyses.attention.live import Exported, LayerGraphs, OperatorGraph
from icl_lab.analyses.attention.maps import Reading
from icl_lab.analyses.attention.prompt import Asked, Window
from icl_lab.base.option_values import GREATEST
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt, Task, plain

TOKENS = 512  # that a page computes at once: a second of a browser's time
CLASSES = 4096  # of which the page carries the words
SAMPLES = (2.0, 3.5)  # answers of which the words are asked, to know how a number is written


def lay(
    task: Task, asked: Asked, readings: Sequence[Reading], window: Window, most: int
) -> tuple[dict[str, object] | None, str]:
    """Return what the page computes with, or nothing and a line that says why.

    ``most`` is how many numbers the models of a page may have in all; 0 asks for a page that does not compute.
    """
    models = [reading.live for reading in readings if isinstance(reading.live, Exported)]
    if len(models) < len(readings):
        why = next((reading.live for reading in readings if reading.live and isinstance(reading.live, str)), "")
        return None, f"This page cannot compute the model itself: {why}." if why else ""
    if (size := sum(model.size for model in models)) > most:
        return None, f"This page cannot compute the model itself: {too_large(size, most)}."
    graphs: list[list[list[object]]] = []
    prompt, whole = asked.prompt, _filled(asked.prompt, task)
    places = prompt.scored[0].nonzero().flatten().tolist()
    return {
        "models": [packed(model, graphs) for model in models],
        "graphs": graphs,
        "tokens": prompt.tokens[0].flatten().tolist(),
        "editable": _editable(task, whole),
        "roles": [[mark.role, mark.quiet] for mark in wording.marks(task, whole)[: task.roles]],
        "said": _words(task, prompt, places),
        "asked": places,
        "answers": [[answer.answer for answer in reading.answers] for reading in readings],
        "truth": [answer.truth for answer in readings[0].answers],
        "references": _references(task, whole, places),
        "last": window.last,
        "largest": GREATEST,
        "most": max(TOKENS, prompt.tokens.shape[1]),
    }, ""


def left_out(readings: Sequence[Reading]) -> list[str]:
    """Sentences on the normalizers that the page does not offer, and why."""
    models = [reading.live for reading in readings if isinstance(reading.live, Exported)]
    reasons = {choice: why for model in models for choice, why in model.left_out.items()}
    return [f"The page does not offer '{choice}': {why.rstrip('.')}." for choice, why in reasons.items()]


def too_large(size: int, most: int) -> str:
    """Say that models have too many numbers for a page, as the end of a sentence."""
    return f"{size:,} numbers are more than the {most:,} that it may carry (--live)"


def packed(model: Exported, graphs: list[list[list[object]]]) -> dict[str, object]:
    """A model for the page; equal graphs, of layers or of models, are held once, in ``graphs``."""

    def place(graph: OperatorGraph) -> dict[str, object]:
        if graph.nodes not in graphs:
            graphs.append(graph.nodes)
        return {"graph": graphs.index(graph.nodes), "shapes": graph.shapes, "numbers": graph.numbers}

    def layers(found: list[LayerGraphs]) -> list[dict[str, object]]:
        return [
            {"weights": place(each.weights), "output": place(each.output) if each.output else None} for each in found
        ]

    return {
        "spec": model.spec,
        "size": model.size,
        "trunk": place(model.trunk),
        "own": layers(model.own),
        "swaps": [[choice, layers(found)] for choice, found in model.swaps.items()],
    }


def _editable(task: Task, prompt: Prompt) -> bool:
    """True if every token is one number that a reader can type, its role given by its position alone."""
    if task.width != 1 or task.vocabulary:
        return False
    marks = wording.marks(task, prompt)
    return all(
        mark.value is not None and (mark.role, mark.index) == (marks[at % task.roles].role, at // task.roles + 1)
        for at, mark in enumerate(marks)
    )


def _words(task: Task, prompt: Prompt, places: Sequence[int]) -> dict[str, object]:
    """Form of an answer: a number between words, chosen by its sign; one of some words; or plain numbers."""
    if not places:
        return {"kind": "numbers", "words": []}

    def said(outputs: torch.Tensor) -> str:
        whole = torch.zeros(1, prompt.tokens.shape[1], task.outputs)
        whole[0, places[0]] = outputs
        return wording.words(task, whole, prompt, places[0])[0]

    if task.outputs == 1:
        words = []
        for sign in (-1, 1):
            first, second = (said(torch.tensor([sign * size])) for size in SAMPLES)
            head, number, tail = first.rpartition(plain(sign * SAMPLES[0]))
            if not number or f"{head}{plain(sign * SAMPLES[1])}{tail}" != second:
                return {"kind": "numbers", "words": []}
            words.append([head, tail])
        return {"kind": "sign", "words": words}
    if task.outputs <= CLASSES:
        one = torch.eye(task.outputs)
        # A share of certainty behind the word is left out: it is another one with every size.
        words = [[said(size * row).partition(" (")[0] for row in one] for size in SAMPLES]
        # An answer may be more than the likeliest word: then a row that has several likely ones is said otherwise.
        several = torch.arange(task.outputs).cos()
        if words[0] == words[1] and said(several).partition(" (")[0] == words[0][int(several.argmax())]:
            return {"kind": "class", "words": words[0]}
    return {"kind": "numbers", "words": []}


def _references(task: Task, whole: Prompt, places: Sequence[int]) -> Mapping[str, list[str]]:
    return {
        name: [wording.words(task, outputs, whole, t)[0] for t in places]
        for name, predict in task.references().items()
        for outputs in [predict(whole)]
    }


def _filled(prompt: Prompt, task: Task) -> Prompt:
    """The prompt with the rest of its last example, as zeros: it ends with a question, and references read examples.

    What stands after a question is read by no answer.
    """
    missing = -prompt.tokens.shape[1] % task.roles
    return Prompt(
        *(
            torch.cat([part, torch.zeros_like(part[:, :missing])], 1)
            for part in (prompt.tokens, prompt.targets, prompt.scored)
        )
    )
