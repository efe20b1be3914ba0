"""Estimators of a linear function of vectors from the examples before each query.

Every estimator maps inputs x (b L d) and labels y (b L) to answers (b L): the one to x_i reads the examples before i.
"""

import math
import warnings

import torch
from torch import Tensor

TIE = 1e-10  # relative: weights that join or leave at penalties nearer to each other do so at the same one
GAP = 1e-9  # of |y|^2 / n: the duality gap that is rounding
FEW = 2**22  # numbers that a reference holds at once, for each of the tables that it needs
SMALLEST = 1e-9  # the variance used for no noise where a density is needed
FREEDOM = 3  # degrees of freedom of Student noise: the fewest whole ones with a variance
ROUNDS = 200  # of an iteration, at most: about 20 are needed
TINY = 1e-12  # where an iteration ends, as a share of its scale
PROXIMAL = 1e-8  # as a share of the largest |x|^2, added to the diagonal of an interior point method
CENTRED = 0.1  # share of the complementarity that a step of an interior point method aims at


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


def surprise(missed: Tensor, law: str, sigma: float) -> Tensor:
    """-log p of residuals, up to a constant, of noise of a law of standard deviation sigma > 0.

    Formula: r^2 / (2 sigma^2); ``student`` of 3 degrees of freedom 2 log(1 + r^2 / sigma^2); ``laplace``
    sqrt(2) |r| / sigma
    """
    if law == "student":
        return (FREEDOM + 1) / 2 * (missed.square() / (sigma**2 * (FREEDOM - 2))).log1p()
    return missed.abs() * (math.sqrt(2) / sigma) if law == "laplace" else missed.square() / (2 * sigma**2)


def heavy_tailed(x: Tensor, y: Tensor, law: str, sigma: float) -> Tensor:
    """The likeliest weights of w ~ N(0, I), noise of standard deviation sigma > 0 and law ``student`` or ``laplace``.

    Formula: max over w of log p(y | x, w) - |w|^2 / 2

    Laplace's density has one maximum, found by an interior point method to a duality gap of 1e-12. Student's, of 3
    degrees of freedom, may have several: the one to which least squares leads, reweighted by 4 / (sigma^2 + r^2) of the
    last residuals r. Warns where a fit is left short of its maximum.
    """
    solve = _likeliest_laplace if law == "laplace" else _likeliest_student
    some = max(1, FEW // (y.shape[1] ** 2 * x.shape[2]))
    fits = [solve(*part, sigma) for part in zip(torch.split(x, some), torch.split(y, some), strict=True)]
    weights, left = (torch.cat(parts) for parts in zip(*fits, strict=True))
    short = ~(left <= GAP)  # NaN is short too
    if short.any():
        words = (
            f"heavy_tailed: {int(short.sum())} of {left.numel()} {law} fits are left short of their maximum by up to"
        )
        warnings.warn(f"{words} {left.max():.2g} of its scale", stacklevel=2)
    return _dot(weights, x)


def _likeliest_laplace(x: Tensor, y: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Weights (b L d) of the examples before each index, and their duality gap as a share of the loss of w = 0, (b L).

    Formula: min |w|^2 / 2 + c |y - X w|_1, c = sqrt(2) / sigma; its dual max u.y - |X' u|^2 / 2, |u_j| <= c, w = X' u

    A primal-dual interior point method (Wright 1997): ``above`` and ``below`` are the positive and negative parts of
    the residuals, the multipliers of u <= c and u >= -c.
    """
    c = math.sqrt(2) / sigma
    known = torch.ones(y.shape[1], y.shape[1], dtype=x.dtype).tril(-1)
    y, number = y.unsqueeze(1) * known, known.sum(1, keepdim=True).clamp(min=1)
    loss = c * y.abs().sum(2)
    eye, u = torch.eye(x.shape[2], dtype=x.dtype), torch.zeros_like(y)
    up = down = torch.full_like(y, c)  # c - u and c + u, to their last digits
    # Weights of examples that are met exactly grow without end, and the prior would be lost against them.
    least = PROXIMAL * x.square().sum(2).amax(1).clamp(min=SMALLEST).view(-1, 1, 1)
    above = below = (y.abs().sum(2, keepdim=True) / number).clamp(min=SMALLEST).expand_as(y)

    def room(value: Tensor, step: Tensor) -> Tensor:
        return torch.where(step < 0, -value / step, torch.inf).amin(2, keepdim=True)

    for _ in range(ROUNDS):
        w = torch.einsum("bij,bjd->bid", u, x)
        missed = (y - w @ x.transpose(1, 2)) * known
        gap = w.square().sum(2) + c * missed.abs().sum(2) - (u * y).sum(2)
        going = (gap > TINY * loss).unsqueeze(2)
        if not going.any():
            break
        mu = CENTRED * ((above * up + below * down) * known).sum(2, keepdim=True) / (2 * number)
        # Newton's step, with the multipliers and then u eliminated: a weighted ridge in the step of w.
        weight = known / (above / up + below / down + least)
        goal = missed - mu / up + mu / down
        gram = torch.einsum("bij,bjd,bje->bide", weight, x, x) + eye
        moment = torch.einsum("bij,bjd->bid", weight * goal, x)
        move = torch.linalg.solve_ex(gram, moment.unsqueeze(3)).result.squeeze(3)
        du = weight * (goal - move @ x.transpose(1, 2))
        d_above = known * (mu - above * up + above * du) / up
        d_below = known * (mu - below * down - below * du) / down
        long = (0.99 * torch.minimum(room(up, -du), room(down, du))).clamp(max=1) * going
        other = (0.99 * torch.minimum(room(above, d_above), room(below, d_below))).clamp(max=1) * going
        u, up, down = u + long * du, up - long * du, down + long * du
        above, below = above + other * d_above, below + other * d_below
    return w, (gap / loss.clamp(min=SMALLEST)).abs()


def _likeliest_student(x: Tensor, y: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Weights (b L d) of the examples before each index, and the last reweighted step as a share of them, (b L).

    Each step is the better one of reweighted least squares, which never falls, and Newton's method, which ends quickly.
    """
    s2 = sigma**2 * (FREEDOM - 2)
    known = torch.ones(y.shape[1], y.shape[1], dtype=x.dtype).tril(-1)
    y, eye = y.unsqueeze(1), torch.eye(x.shape[2], dtype=x.dtype)

    def moved(weights: Tensor, slope: Tensor) -> Tensor:
        gram = torch.einsum("bij,bjd,bje->bide", weights, x, x) + eye
        step: Tensor = torch.linalg.solve_ex(gram, slope.unsqueeze(3)).result.squeeze(3)
        return step

    def loss(w: Tensor) -> Tensor:
        surprises = surprise(y - w @ x.transpose(1, 2), "student", sigma)
        return (surprises * known).sum(2) + w.square().sum(2) / 2

    w = moved(known.expand(len(x), -1, -1) / s2, torch.einsum("ij,bkj,bjd->bid", known / s2, y, x))
    for _ in range(ROUNDS):
        missed = y - w @ x.transpose(1, 2)
        steep = known * (FREEDOM + 1) / (s2 + missed.square())
        slope = torch.einsum("bij,bjd->bid", steep * missed, x) - w
        step = moved(steep, slope)
        left = step.norm(dim=2) / (1 + w.norm(dim=2))
        if left.max() <= TINY:
            break
        newton = moved(steep - (steep * missed).square() * (2 / (FREEDOM + 1)), slope)
        # Where the density bends upwards Newton's method errs, and least squares crawls. Near the end rounding decides.
        for each, share in ((10 * step, 1 - TINY), (newton, 1 + TINY)):
            step = torch.where((loss(w + each) <= share * loss(w + step)).unsqueeze(2), each, step)
        w = w + step
    return w, left


def trees(x: Tensor, y: Tensor, *, boosted: bool) -> Tensor:
    """Regression trees of scikit-learn as it sets them, one grown greedily or 100 boosted; 0 before the first example.

    Every answer needs a new fit: about 1 ms for one tree, 20 ms for boosted ones.
    """
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.tree import DecisionTreeRegressor

    kind = GradientBoostingRegressor if boosted else DecisionTreeRegressor
    answers = torch.zeros_like(y)
    for b, (inputs, labels) in enumerate(zip(x.numpy(), y.numpy(), strict=True)):
        for i in range(1, len(labels)):
            fit = kind(random_state=0).fit(inputs[:i], labels[:i])
            answers[b, i] = float(fit.predict(inputs[i : i + 1])[0])
    return answers


def discrete(x: Tensor, y: Tensor, weights: Tensor, sigma: float, law: str = "normal") -> Tensor:
    """The posterior mean where the function is one of ``weights`` (M d), all alike likely, and the noise of ``law``.

    Formula: sum_m p_m w_m.x, p_m = softmax_m(sum_(j < i) log p(y_j - w_m.x_j)), p the density of the noise, of standard
    deviation sigma (Raventos et al. 2023: normal)
    """
    sigma = max(sigma, math.sqrt(SMALLEST))
    answers, some = [], max(1, FEW // (y.shape[1] * len(weights)))
    for start in range(0, len(y), some):
        told = x[start : start + some] @ weights.to(x).T  # (b L M)
        before = _before(surprise(y[start : start + some].unsqueeze(2) - told, law, sigma))
        answers.append(((-before).softmax(2) * told).sum(2))
    return torch.cat(answers)


def lasso(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """The minimum of |y - X w|^2 / (2 n) + penalty |w|_1 over n examples, to the digits of the numbers.

    Warns, with the largest duality gap, where that is more than rounding.
    """
    gram, moment = _moments(x, y)
    known = torch.arange(x.shape[1], dtype=x.dtype).clamp(min=1)
    gram, moment = (gram / known.view(-1, 1, 1)).flatten(0, 1), (moment / known.view(-1, 1)).flatten(0, 1)
    energy = (_before(y.square()) / known).flatten()
    some = max(1, FEW // moment.shape[1] ** 2)
    weights = torch.cat(
        [_path(*part, penalty) for part in zip(torch.split(gram, some), torch.split(moment, some), strict=True)]
    )
    gap = duality_gap(gram, moment, energy, weights, penalty)
    short = gap > GAP * energy
    if short.any():
        words = f"lasso: {int(short.sum())} of {len(gap)} fits are left a duality gap of up to {gap.max():.2g}"
        warnings.warn(words, stacklevel=2)
    return _dot(weights.view(x.shape), x)


def duality_gap(gram: Tensor, moment: Tensor, energy: Tensor, weights: Tensor, penalty: float) -> Tensor:
    """Duality gap: the most by which the loss of ``weights`` (p d) exceeds the minimum of the lasso, (p); over n.

    Formula: P(w) - D(s r), r = y - X w, s = min(1, penalty / max |X' r / n|), D(u) = (|y|^2 - |y - u|^2) / (2 n)
    """
    fitted = (gram @ weights.unsqueeze(2)).squeeze(2)
    along = (weights * moment).sum(1)
    left = energy - 2 * along + (weights * fitted).sum(1)  # |r|^2 / n
    scale = (penalty / (moment - fitted).abs().amax(1)).clamp(max=1)
    primal = left / 2 + penalty * weights.abs().sum(1)
    return primal - (scale * (energy - along) - scale.square() * left / 2)


def _path(gram: Tensor, moment: Tensor, penalty: float) -> Tensor:
    """Minimise w.G w / 2 - w.c + penalty |w|_1 for G (p d d) and c (p d), by the path of w as the penalty falls.

    Paper: Osborne, Presnell and Turlach 2000; Efron et al. 2004 (LARS)

    The path is straight between penalties at which a weight joins those that are not 0, or leaves them, and begins with
    w = 0 at max |c|. Unlike coordinate descent it ends after about as many steps as there are such weights, with fewer
    examples than dimensions too.
    """
    found = torch.zeros_like(moment)
    at, first = moment.abs().max(1)  # the penalty that each fit has come to, and the weight that joins or leaves there
    left = (at > penalty).nonzero().squeeze(1)
    at, changing = at[left], first[left]
    signs = torch.zeros_like(moment[left]).scatter(
        1, changing.unsqueeze(1), moment[left].sign().gather(1, changing.unsqueeze(1))
    )
    before = torch.zeros_like(signs)  # signs before the last change
    for _ in range(20 * moment.shape[1] + 20):
        if not len(left):
            break
        w, u, reached, number = _segment(gram[left], moment[left], signs, before, changing, at)
        done = reached <= penalty
        found[left[done]] = (w - penalty * u)[done]
        going = ~done
        left, signs, at, changing = (part[going] for part in (left, signs, reached, number))
        w, u = w[going], u[going]
        before = signs.clone()
        column = changing.unsqueeze(1)
        # A weight that was 0 joins with the sign of its slope there; one that was not leaves.
        slope = (moment[left] - (gram[left] @ (w - at.unsqueeze(1) * u).unsqueeze(2)).squeeze(2)).sign()
        new = torch.where(signs.gather(1, column) == 0, slope.gather(1, column), 0.0)
        signs = signs.scatter(1, column, new)
    if len(left):  # as far as they have come; the duality gap shows the remaining error
        found[left] = w - at.unsqueeze(1) * u
    return found


def _segment(
    gram: Tensor, moment: Tensor, signs: Tensor, before: Tensor, changing: Tensor, at: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A straight piece of the path, w - penalty u: both, the penalty at which it ends, and the weight that changes."""
    used = signs != 0
    system = torch.where(used.unsqueeze(2) & used.unsqueeze(1), gram, torch.eye(gram.shape[1], dtype=gram.dtype))
    sides = torch.stack((moment * used, signs), 2)
    solved = torch.linalg.solve_ex(system, sides).result
    w, u = solved.unbind(2)
    # Slopes c - G w along the piece are rest + penalty rise; a weight joins where that is the penalty or its negative.
    rest, rise = (moment.unsqueeze(2) - gram @ w.unsqueeze(2)).squeeze(2), (gram @ u.unsqueeze(2)).squeeze(2)
    joins = torch.stack((rest / (1 - rise), -rest / (1 + rise)))
    leaves = w / u
    just = torch.zeros_like(used).scatter(1, changing.unsqueeze(1), True)
    never = torch.full_like(w, -torch.inf)
    # What has just joined or left would do so again at the same penalty.
    again = torch.stack((just & (before > 0), just & (before < 0)))
    joins = torch.where(used | again, never, joins)
    leaves = torch.where(used & ~just, leaves, never)
    events = torch.cat((joins, leaves.unsqueeze(0)))
    late = at.unsqueeze(1) * (1 + TIE)
    events = torch.where((events <= late) & events.isfinite(), events, never).amax(0)
    reached, number = events.max(1)
    return w, u, torch.minimum(reached, at), number


def _moments(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the examples before each index: x x^T, (b L d d), and y x, (b L d)."""
    squares, products = x.unsqueeze(3) * x.unsqueeze(2), y.unsqueeze(2) * x
    return _before(squares), _before(products)


def _before(values: Tensor) -> Tensor:
    """The sum over the indices before each, (b L ...)."""
    return torch.cat((torch.zeros_like(values[:, :1]), values[:, :-1].cumsum(1)), 1)


def _dot(weights: Tensor, x: Tensor) -> Tensor:
    return (weights * x).sum(2)
