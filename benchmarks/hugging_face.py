"""The GPT-2 of Hugging Face transformers in the loop of the original in-context-learning code. The door to it.

Source: Garg et al. 2022, arXiv 2208.01066, whose code arXiv 2508.14685 builds on. Written anew after its description:
prompts x_1 y_1 x_2 y_2 ... are woven from xs and ys at every step, read in by a linear map, handed to ``GPT2Model`` as
``inputs_embeds``, and read out at the x's; plain Adam, no clipping, no dropout, the loss read at every step.
"""

import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

ROWS = 512  # of the position table, as in the published configuration


class Loop:
    """Train the model on y = a x + b; each call is one step, and returns the loss."""

    def __init__(self, layers: int, heads: int, width: int, batch: int, pairs: int, device: torch.device) -> None:
        self.shape, self.device = (batch, pairs, 1), device
        config = GPT2Config(n_positions=ROWS, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        parts = {"read_in": nn.Linear(1, width), "backbone": GPT2Model(config), "read_out": nn.Linear(width, 1)}
        self.model = nn.ModuleDict(parts).to(device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def __call__(self) -> float:
        """Draw prompts and do one step of Adam on them."""
        xs = torch.randn(self.shape)
        a, b = torch.randn(2, len(xs), 1, 1)
        prompt = torch.stack((xs, a * xs + b), dim=2).flatten(1, 2).to(self.device)
        self.adam.zero_grad()
        hidden = self.model["backbone"](inputs_embeds=self.model["read_in"](prompt)).last_hidden_state
        loss = (self.model["read_out"](hidden)[:, ::2] - prompt[:, 1::2]).square().mean()
        torch.autograd.backward(loss)
        self.adam.step()
        return float(loss.detach())
