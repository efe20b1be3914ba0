"""Exact answers clipped to a model's bound: their error, the metric ``floor``, is the least that the model can have."""

import torch

from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Predictor, Prompt, Task


def exact_within_bound(model: GPT2, task: Task) -> Predictor | None:
    """Predictor of the exact answers, clipped to ``model.answer_bound``: prompts -> (b t 1).

    Formula: clamp(y / s, c - C, c + C) s, s the factor where labels are rescaled, else 1

    None where answers are not numbers or the model has no bound.
    """
    centre, bound = (value.cpu() for value in model.answer_bound())
    if not task.numeric or not bound.isfinite().all():
        return None

    def answer(prompt: Prompt) -> torch.Tensor:
        factor = torch.ones_like(prompt.targets).unsqueeze(2)
        if model.rescaling is not None:
            scaled = model.rescaling(prompt.tokens)
            known = torch.arange(prompt.tokens.shape[1]).view(1, -1, 1) >= scaled.start
            factor = torch.where(known, scaled.factor, factor)
        return (prompt.targets.unsqueeze(2) / factor).clamp(centre - bound, centre + bound) * factor

    return answer
