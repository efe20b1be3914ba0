"""Floor of a model's error: the error of exact answers, clipped to the bound that the final norm and read-out set."""

import math

import torch
from torch import Tensor

from icl_lab.errors import RunFailed
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.run import Run
from icl_lab.tasks.base import Predictor, Prompt, Task


def exact_within_bound(model: GPT2, task: Task) -> Predictor | None:
    """Predictor of the exact answers, clipped to ``model.answer_bound``: prompts -> (b t 1).

    Formula: clamp(y / s, c - C, c + C) s, s the factor where labels are rescaled, else 1

    None where answers are no numbers or the model has no bound.
    """
    centre, bound = (value.cpu() for value in model.answer_bound())
    if not task.numeric or not bound.isfinite().all():
        return None

    def answer(prompt: Prompt) -> Tensor:
        factor = torch.ones_like(prompt.targets).unsqueeze(2)
        if model.rescaling is not None:
            scaled = model.rescaling(prompt.tokens)
            known = torch.arange(prompt.tokens.shape[1]).view(1, -1, 1) >= scaled.start
            factor = torch.where(known, scaled.factor, factor)
        return (prompt.targets.unsqueeze(2) / factor).clamp(centre - bound, centre + bound) * factor

    return answer


def bound_words(run: Run) -> str:
    """The bound that the final norm and the read-out set on a run's answers, in words."""
    try:
        known = run.answer_bound()
    except RunFailed:
        return "damaged (see icl-lab verify)"
    if known is None:
        return "bound on answers not kept" if run.finished else "not trained yet"
    centre, bound = (value.tolist() for value in known)
    if not math.isfinite(bound[0]):
        return "no bound on answers (no final norm)"
    bounds = [f"{each:.4g} around {middle:.3g}" for middle, each in zip(centre, bound, strict=True)]
    return f"answers bounded by C = {bounds[0]}" if len(bounds) == 1 else f"outputs bounded by C up to {max(bound):.4g}"
