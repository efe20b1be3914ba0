"""Second derivatives of functions whose first ones are written out by hand."""

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.autograd import forward_ad

from icl_lab.base.errors import BadValue


def differentiated_again(*saved: Tensor) -> bool:
    """True if what a backward pass computes from these tensors is itself differentiated, backward or forward.

    Then it has to be computed by operations that torch differentiates, from the inputs alone; otherwise the shortest
    way will do. Compiled code is never differentiated twice: torch refuses that itself.
    """
    if torch.compiler.is_compiling():
        return False
    duals = (forward_ad.unpack_dual(x) for x in saved)  # type: ignore[no-untyped-call]
    return torch.is_grad_enabled() or any(dual.tangent is not None for dual in duals)


def refuse_forward_twice() -> None:
    """Raise ``BadValue`` in a ``jvp`` that would itself be differentiated forward.

    torch computes it with forward derivatives switched off, so that an outer one would take it for a constant.
    """
    if sum(level.key() == TransformType.Jvp for level in retrieve_all_functorch_interpreters()) > 1:
        raise BadValue(
            "jvp of jvp (jacfwd of jacfwd) passes a function whose slope is written out by hand, which torch cannot"
            " differentiate forward twice: take torch.func.hessian, or jvp of grad."
        )
