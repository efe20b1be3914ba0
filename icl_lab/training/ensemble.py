"""Several seeds of one training as one: their models stacked, one pass and one optimizer for all of them."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from icl_lab.model.gpt2 import GPT2
from icl_lab.rng import stream
from icl_lab.tasks.base import Prompt, Task
from icl_lab.training import scaling
from icl_lab.training.engines import subnormals_flushed
from icl_lab.training.loop import drawn
from icl_lab.training.optimizers import Optimizer
from icl_lab.training.recipe import TrainSpec

SMALL = 1e-6  # what torch.nn.utils.clip_grad_norm_ adds to a norm


class Stack(nn.Module):
    """Models of one shape, every parameter a row of a larger one, (s ..), so that one pass serves all s.

    Formula: loss_i = loss(model(theta_i, tokens_i)) for i = 1 .. s, the model mapped over i by ``vmap``

    A GPU is not filled by one small model, so that several cost little more; a CPU is, and gains nothing. Autograd
    records the operations below ``vmap``: the backward pass is that of plain tensors and needs no batching normalizers.
    """

    def __init__(self, models: Sequence[GPT2], task: Task) -> None:
        super().__init__()
        self.names = [name for name, _ in models[0].named_parameters()]
        self.numbers = nn.ParameterList(
            nn.Parameter(torch.stack([p.detach() for p in row]), requires_grad=row[0].requires_grad)
            for row in zip(*(model.parameters() for model in models), strict=True)
        )
        self.task, code, self.matrices = task, models[0].positions, models[0].matrices()
        # Functions, not modules: the parameters of a part of this module would count beside the stacked ones.
        self.model = partial(functional_call, models[0])
        self.where = code.where if code.random else None

    def forward(self, tokens: Tensor, targets: Tensor, scored: Tensor, places: Tensor | None) -> Tensor:
        """Tokens (s b t w), targets and scored (s b t), places of the tokens (s t) or none -> losses (s)."""
        numbers = dict(zip(self.names, self.numbers, strict=True))
        mapped = vmap(self._loss, in_dims=(0, 0, 0, 0, None if places is None else 0))
        # The fused kernels of a CPU cannot be mapped. Those of a GPU can, but do not see from inside that there will be
        # a way back, and keep nothing for it. Prompts short enough to leave a GPU idle do not need them.
        with sdpa_kernel(SDPBackend.MATH):
            losses: Tensor = mapped(numbers, tokens, targets, scored, places)
        return losses

    def _loss(
        self, numbers: dict[str, Tensor], tokens: Tensor, targets: Tensor, scored: Tensor, places: Tensor | None
    ) -> Tensor:
        outputs = self.model(numbers, (tokens,), {"answers": self.task.answers, "places": places})
        return self.task.loss(outputs, Prompt(tokens, targets, scored))

    def draw(self, spec: TrainSpec, seeds: Sequence[int], step: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Batch of ``step``: for each seed the prompts and places of its own training."""
        device, prompts = self.numbers[0].device, [drawn(self.task, spec, seed, step) for seed in seeds]
        tokens, targets, scored = (
            torch.stack([getattr(prompt, part) for prompt in prompts]).to(device)
            for part in ("tokens", "targets", "scored")
        )
        if self.where is None:  # the same for every prompt of this many tokens
            return tokens, targets, scored, None
        places = [self.where(tokens.shape[2], stream(seed, "places", step), device) for seed in seeds]
        return tokens, targets, scored, torch.stack(places)

    @torch.no_grad()
    def unload(self, models: Sequence[GPT2]) -> None:
        """Copies the rows back into the models that they came from."""
        for k, model in enumerate(models):
            for p, rows in zip(model.parameters(), self.numbers, strict=True):
                p.copy_(rows[k])


@subnormals_flushed()
def advance(stack: Stack, optim: Optimizer, spec: TrainSpec, seeds: Sequence[int], step: int) -> Tensor:
    """Does one step of every seed, and returns their losses (s) without synchronising the device.

    Adam works element by element, so that one Adam of the stacked parameters equals one a seed; clipping by a norm does
    not, and is done for each seed.
    """
    optim.set_rate(spec.rate_at(step))
    losses: Tensor = stack(*stack.draw(spec, seeds, step))
    optim.zero_grad()
    torch.autograd.backward(losses.sum())
    if spec.clip:
        clip([p.grad for p in stack.numbers if p.grad is not None], spec.clip)
    optim.step()
    optim.update_ema()
    return losses.detach()


def clip(gradients: Sequence[Tensor], bound: float) -> None:
    """Bounds the norm of each seed's gradients (s ..) in place, as if they stood alone."""
    norms = torch.cat([gradient.flatten(1) for gradient in gradients], 1).norm(dim=1)
    shares = (bound / (norms + SMALL)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))


def optimizer(stack: Stack, spec: TrainSpec) -> Optimizer:
    """Optimizer of the stacked parameters; each seed is updated as if alone."""
    parameters, parts = dict(zip(stack.names, stack.numbers, strict=True)), scaling.parts(stack.model.args[0], spec)
    return Optimizer(spec, parameters, stack.matrices, parts, len(stack.numbers[0]))
