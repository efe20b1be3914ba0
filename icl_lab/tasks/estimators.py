"""Estimators of a linear function of vectors from the examples before each query.

Every estimator maps inputs x (b L d) and labels y (b L) to answers (b L): the one to x_i reads the examples before i.
"""

import torch
from torch import Tensor

SWEEPS = 1000  # of coordinate descent, at most
TOLERANCE = 1e-6  # the largest change of a weight in a sweep at which it has settled
FEW = 2**22  # numbers that a reference holds at once, for each of the tables that it needs
SMALLEST = 1e-9  # the variance that stands for no noise where a density is needed


def ridge(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """The minimum of |y - X w|^2 + penalty |w|^2; with penalty 0 the least squares solution of least norm.

    With the variance of the noise as penalty it is the posterior mean where weights are N(0, I): the Bayes answer.
    """
    gram, moment = _moments(x, y)
    if penalty > 0:
        eye = torch.eye(x.shape[2], dtype=x.dtype)
        return _dot(torch.linalg.solve(gram + penalty * eye, moment.unsqueeze(3)).squeeze(3), x)
    # Eigenvalues are squares: below this share of the largest they are rounding.
    return _dot((torch.linalg.pinv(gram, rtol=1e-11, hermitian=True) @ moment.unsqueeze(3)).squeeze(3), x)


def averaging(x: Tensor, y: Tensor) -> Tensor:
    """The mean of y x as weights, which is right for many inputs N(0, I) (Garg et al. 2022); 0 before the first."""
    known = torch.arange(x.shape[1], dtype=x.dtype).clamp(min=1)
    return _dot(_moments(x, y)[1] / known.unsqueeze(1), x)


def nearest(distance: Tensor, y: Tensor, neighbours: int) -> Tensor:
    """Distances (b L L): the mean y of the nearest examples before each (fewer where fewer are known, else 0)."""
    length = y.shape[1]
    known = torch.ones(length, length, dtype=torch.bool).tril(-1)
    near = distance.masked_fill(~known, torch.inf).topk(min(neighbours, length), dim=2, largest=False)
    used = near.values.isfinite()
    values = y.unsqueeze(1).expand(-1, length, -1).gather(2, near.indices)
    return (values * used).sum(2) / used.sum(2).clamp(min=1)


def discrete(x: Tensor, y: Tensor, weights: Tensor, sigma: float) -> Tensor:
    """The posterior mean where the function is one of ``weights`` (M d), all alike likely, and the noise N(0, sigma^2).

    Formula: sum_m p_m w_m.x, p_m = softmax_m(-sum_(j < i) (y_j - w_m.x_j)^2 / (2 sigma^2)) (Raventos et al. 2023)
    """
    answers, some = [], max(1, FEW // (y.shape[1] * len(weights)))
    for start in range(0, len(y), some):
        told = x[start : start + some] @ weights.to(x).T  # (b L M)
        missed = (y[start : start + some].unsqueeze(2) - told).square()
        before = _before(missed)
        answers.append(((-before / (2 * max(sigma**2, SMALLEST))).softmax(2) * told).sum(2))
    return torch.cat(answers)


def lasso(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """The minimum of |y - X w|^2 / (2 n) + penalty |w|_1 over n examples, by coordinate descent."""
    gram, moment = _moments(x, y)
    known = torch.arange(x.shape[1], dtype=x.dtype).clamp(min=1)
    gram, moment = gram / known.view(-1, 1, 1), moment / known.view(-1, 1)
    return _dot(_descend(gram.flatten(0, 1), moment.flatten(0, 1), penalty).view(x.shape), x)


def _descend(gram: Tensor, moment: Tensor, penalty: float) -> Tensor:
    """Minimises w.G w / 2 - w.c + penalty |w|_1 for G (p d d) and c (p d), until no weight moves."""
    found = torch.zeros_like(moment)
    left = torch.arange(len(moment))
    for _ in range(SWEEPS):
        g, c, w = gram[left], moment[left], found[left]
        for j in range(moment.shape[1]):
            own = g[:, j, j]
            rest = c[:, j] - (g[:, j] * w).sum(1) + own * w[:, j]
            # An input that has been 0 so far says nothing of its weight.
            w[:, j] = torch.where(own > 0, torch.nn.functional.softshrink(rest, penalty) / own, 0.0)
        moved = (w - found[left]).abs().amax(1) > TOLERANCE
        found[left] = w
        left = left[moved]
        if not len(left):
            break
    return found


def _moments(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the examples before each index: x x^T, (b L d d), and y x, (b L d)."""
    squares, products = x.unsqueeze(3) * x.unsqueeze(2), y.unsqueeze(2) * x
    return _before(squares), _before(products)


def _before(values: Tensor) -> Tensor:
    """The sum over the indices before each, (b L ...)."""
    return torch.cat((torch.zeros_like(values[:, :1]), values[:, :-1].cumsum(1)), 1)


def _dot(weights: Tensor, x: Tensor) -> Tensor:
    return (weights * x).sum(2)
