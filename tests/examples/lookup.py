"""Several keys, each asked for once more: which value stood beside it?"""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Mark, Prompt, Task


@registry.add("lookup")
@dataclass(frozen=True, kw_only=True)
class Lookup(Task):
    """Multi-query associative recall of whole-number tokens: pairs first, then each key at a random place.

    Formula: k_1 v_1 .. k_P v_P - k_2 - - k_1 .. -> v_2, v_1, ..; cross-entropy; length counts tokens
    Paper: after Zoology, Arora et al. 2023, arXiv 2312.04927
    """

    headline, roles, worst = "error", 1, 1.0
    axes = {grid: {"pairs": (2, 4, 8), "length": (24, 32, 64)} for grid in ("full", "thin", "tiny")}
    heat_map, training = ("pairs", "length"), {"pairs": 4.0}
    usual = {"train.curriculum.start": "16", "train.curriculum.stop": "32", "model.positions": "rotary"}
    metric_labels = {"error": "error rate of an answer"}
    keys: int = 8  # and as many values: tokens are keys, then values, then the filler
    vocabulary = property(lambda self: 2 * self.keys + 1)
    outputs = property(lambda self: self.keys)

    def check_length(self, length, **shift):
        pairs = self.sigmas(shift)[0]
        bound = f"pairs must be whole, up to keys={self.keys}, and at most a third of the length"
        require(pairs in range(1, self.keys + 1) and 3 * pairs <= length, bound, f"{pairs:g} in {length} tokens")

    def sample(self, rng, prompts, length, **shift):
        (pairs,) = map(int, self.sigmas(shift))
        keys = torch.rand(prompts, self.keys, generator=rng).argsort(1)[:, :pairs]
        values = torch.randint(self.keys, (prompts, self.keys), generator=rng)[:, :pairs]
        places = 2 * pairs + torch.rand(prompts, length, generator=rng)[:, 2 * pairs :].argsort(1)[:, :pairs]
        tokens = torch.full((prompts, length), 2 * self.keys).scatter(1, places, keys)
        tokens[:, : 2 * pairs] = torch.stack((keys, self.keys + values), 2).flatten(1)
        targets = torch.zeros(prompts, length).scatter(1, places, values.float())
        return Prompt(tokens, targets, torch.zeros_like(tokens, dtype=torch.bool).scatter(1, places, True))

    def loss(self, outputs, prompt):
        return prompt.mean(cross_entropy(outputs.transpose(1, 2), prompt.targets.long(), reduction="none"))

    def errors(self, outputs, prompt):
        return prompt.blank((outputs.argmax(2) != prompt.targets).float())

    def views(self, errors, prompt, **shift):
        return {"error": errors.nanmean(1)}

    def marks(self, prompt):
        names = [f"K{key + 1}" for key in range(self.keys)] + [f"v{key + 1}" for key in range(self.keys)] + ["-"]
        return [Mark("token", t, names[token]) for t, token in enumerate(prompt.tokens[0].tolist(), 1)]

    def words(self, outputs, prompt, t):
        return f"v{int(outputs[0, t].argmax()) + 1}", f"v{int(prompt.targets[0, t]) + 1}"
