"""The GPT-2 of Hugging Face transformers in the loop of the original in-context-learning code. The door to it.

Source: Garg et al. 2022, arXiv 2208.01066, whose code arXiv 2508.14685 builds on. Written anew after its description:
prompts x_1 y_1 x_2 y_2 ... are woven from xs and ys at every step, read in by a linear map, handed to ``GPT2Model`` as
``inputs_embeds``, and read out at the x's; plain Adam, no clipping, the loss read at every step.
"""

from importlib.util import find_spec

import torch
from torch import Tensor, nn

ROWS = 512  # of the position table, as in the published configuration


def available() -> bool:
    """True if transformers can be imported here."""
    return find_spec("transformers") is not None


class Loop:
    """Trains the model on y = a x + b; each call is one step, and returns the loss."""

    def __init__(self, layers: int, heads: int, width: int, batch: int, pairs: int, device: torch.device) -> None:
        self.batch, self.pairs, self.device = batch, pairs, device
        self.model = Reader(layers, heads, width).to(device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def __call__(self) -> float:
        """Draws prompts and does one step of Adam on them."""
        xs = torch.randn(self.batch, self.pairs, 1)
        a, b = torch.randn(2, self.batch, 1, 1)
        ys = (a * xs + b)[:, :, 0]
        xs, ys = xs.to(self.device), ys.to(self.device)
        self.adam.zero_grad()
        loss = (self.model(xs, ys) - ys).square().mean()
        torch.autograd.backward(loss)
        self.adam.step()
        return float(loss.detach())


class Reader(nn.Module):
    """``GPT2Model`` between a linear read-in and a linear read-out, without dropout."""

    def __init__(self, layers: int, heads: int, width: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2Model

        self.read_in = nn.Linear(1, width)
        config = GPT2Config(n_positions=ROWS, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        self.backbone = GPT2Model(config)
        self.read_out = nn.Linear(width, 1)

    def forward(self, xs: Tensor, ys: Tensor) -> Tensor:
        """Xs (b L 1), ys (b L) -> answers after each x, (b L)."""
        prompt = torch.stack((xs, ys.unsqueeze(2)), dim=2).flatten(1, 2)
        hidden = self.backbone(inputs_embeds=self.read_in(prompt)).last_hidden_state
        answers: Tensor = self.read_out(hidden)[:, ::2, 0]
        return answers
