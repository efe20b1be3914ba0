"""Assertions of contract checks."""

import torch
from torch import Tensor


def hold(holds: bool | Tensor, sentence: str) -> None:
    """Raise ``AssertionError`` with the sentence unless ``holds``; works under ``python -O`` as well."""
    if not holds:
        raise AssertionError(sentence)


def close(got: Tensor, wanted: Tensor, sentence: str, *, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise ``AssertionError`` with the sentence unless two tensors have equal shapes and nearly equal entries."""
    try:
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)
    except AssertionError as error:
        told = next((line for line in str(error).splitlines() if line.startswith("Greatest absolute")), "")
        raise AssertionError(f"{sentence} {told}".strip()) from None
