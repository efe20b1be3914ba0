"""Test prompts of another distribution than those of training: Garg et al. 2022 (arXiv 2208.01066), Section 4."""

import math

import torch
from torch import Tensor

QUESTIONS = ("quadrants", "opposite", "orthogonal", "overlap")  # shifts of the last input alone, which is asked for


def inputs(rng: torch.Generator, x: Tensor, shift: str) -> Tensor:
    """Standard normal inputs x (b L d) -> inputs under a shift, (b L d), as the published code makes them.

    ``skewed``: covariance of a random eigenbasis, eigenvalues as 1 / i^2; ``subspace``: a random subspace of d // 2
    dimensions; both with trace d, a basis for each prompt. The others leave the law of examples, or fix the sign of
    each number (``quadrants``, ``opposite``), and change the last input: any signs (``quadrants``), all signs opposite
    (``opposite``), orthogonal to all examples and as long as before (``orthogonal``), an example (``overlap``).
    """
    prompts, length, dim = x.shape
    last = x[:, -1:]
    if shift in ("skewed", "subspace"):
        spread = 1 / torch.arange(1, dim + 1) if shift == "skewed" else (torch.arange(dim) < dim // 2).float()
        basis = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng)).Q
        spread = spread * math.sqrt(dim / spread.square().sum())
        shifted: Tensor = x @ (basis * spread) @ basis.transpose(1, 2)
        return shifted
    if shift in ("quadrants", "opposite"):
        x = x.abs() * torch.randn(prompts, 1, dim, generator=rng).sign()
        last = last if shift == "quadrants" else -x[:, -1:]
    elif shift == "orthogonal":
        basis = torch.linalg.qr(x[:, :-1].double().transpose(1, 2)).Q
        rest = last - last.double() @ basis @ basis.transpose(1, 2)
        last = (rest * (last.norm(dim=2) / rest.norm(dim=2)).unsqueeze(2)).float()
    elif shift == "overlap" and length > 1:
        chosen = torch.randint(length - 1, (prompts,), generator=rng)
        last = x[torch.arange(prompts), chosen].unsqueeze(1)
    return torch.cat((x[:, :-1], last), 1)
