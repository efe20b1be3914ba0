"""Bound that the final norm and the linear read-out set on every answer, whatever the normalizer of the attention."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from icl_lab.model.spec import Norm

LAST = ("norm.weight", "norm.bias", "read_out.weight", "read_out.bias")  # the parameters that the bound follows from


@torch.no_grad()
def answer_bound(last: Mapping[str, Tensor], kind: Norm) -> tuple[Tensor, Tensor]:
    """Centre c and bound C of the answers, each (outputs,): |answer - c| <= C for every prompt and any normalizer.

    Formula: c = W beta + b0, C = sqrt(d) ||(I - 11'/d)(g * w)|| (layer norm); c = b0, C = sqrt(d) ||g * w|| (RMS norm)

    g and beta are gain and shift of the final norm, w a row of the read-out weight W, b0 its bias, d the width. Without
    a final norm C is infinite. ``last`` holds the parameters by the names ``LAST``.

    Proof: the final norm hands on g * u + beta with ||u|| <= sqrt(d), and 1'u = 0 where it is a layer norm, so that
    answer - c = (g * w)'u. By Cauchy-Schwarz this is at most sqrt(d) times the length of g * w, projected onto the
    vectors of mean 0 for a layer norm; u along that projection attains it. The norm's epsilon only shortens u.

    Source: our derivation. Naim and Asher 2025, arXiv 2502.03503, name layer norm and softmax as causes of a limit;
    arXiv 2508.14685 says that boundary values originate from the multi-head attention itself.
    """
    read_out, centre = last["read_out.weight"].double(), last["read_out.bias"].double()
    if kind == "none":
        return centre.float(), torch.full_like(centre, math.inf).float()
    direction = read_out * last["norm.weight"].double()
    if kind == "layer":
        centre = centre + read_out @ last["norm.bias"].double()
        direction = direction - direction.mean(1, keepdim=True)
    return centre.float(), (math.sqrt(read_out.shape[1]) * direction.norm(dim=1)).float()
