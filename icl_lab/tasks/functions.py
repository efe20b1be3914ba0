"""Function classes of Garg et al. 2022 (arXiv 2208.01066) besides linear functions: inputs (b L d) -> values (b L).

All but trees and classes have the expected square d of a linear function with weights N(0, 1), for inputs N(0, I).
"""

import math

import torch
from torch import Tensor


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Weights w (b d): w.x."""
    return (x @ w.unsqueeze(2)).squeeze(2)


def quadratic(x: Tensor, w: Tensor) -> Tensor:
    """Weights w (b d): w.x^2 / sqrt(3), the squares number by number, since E x^4 = 3."""
    return linear(x.square(), w) / math.sqrt(3)


def classes(x: Tensor, w: Tensor) -> Tensor:
    """Weights w (b d): the sign of w.x, 1 or -1."""
    return linear(x, w).sign()


def network(x: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Weights inner (b d h), outer (b h): sqrt(2 / h) outer.max(0, inner x), since ReLU halves a square."""
    return linear((x @ inner).relu(), outer) * math.sqrt(2 / outer.shape[1])


def tree(x: Tensor, numbers: Tensor, leaves: Tensor) -> Tensor:
    """Binary trees: node n asks whether number ``numbers[n]`` of x is positive, and goes on at 2 n + 1, or 2 n + 2.

    numbers, leaves (b n), both for all n = 2^(depth + 1) - 1 nodes, root first: only inner nodes ask, and only those of
    the last row have a value.
    """
    node = torch.zeros(x.shape[:2], dtype=torch.long)
    while int(node.max()) < numbers.shape[1] // 2:
        asked = x.gather(2, numbers.gather(1, node).unsqueeze(2)).squeeze(2)
        node = 2 * node + 1 + (asked > 0)
    return leaves.gather(1, node)
