"""A few hundred steps of training with a normalizer in place, since a swap is not free."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.errors import BadValue, Diverged, RunFailed, Stopped
from icl_lab.files import write
from icl_lab.language.loss import Tick
from icl_lab.language.model import LanguageModel, windows_of
from icl_lab.rng import stream
from icl_lab.runs import checkpoints
from icl_lab.texts.corpus import Corpus

SECONDS = 60.0  # between two checkpoints
CLIP = 1.0


@dataclass(frozen=True)
class Recipe:
    """Adam without decay at ``rate``, risen to within the first tenth of the steps, on ``batch`` windows a step.

    ``learn`` says what moves: all weights, or only the numbers of the normalizer.
    """

    steps: int
    learn: Literal["all", "rule"] = "all"
    rate: float = 1e-4
    batch: int = 4
    length: int = 256
    seed: int = 0


def tune(
    language: LanguageModel,
    corpus: Corpus,
    recipe: Recipe,
    path: Path,
    tick: Tick = lambda done, total: None,
    stopping: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Trains the model in place on the training parts of a text; returns the loss of each step in nats.

    The state is kept in a file every minute and at the end: a second call goes on from there with the same bits, and
    one that is over only reads it. Raises ``Stopped`` when asked to stop, with the state kept, ``Diverged`` where
    the loss is no finite number, and ``BadValue`` where the normalizer has no numbers to learn.
    """
    moving = _moving(language, recipe)
    optimizer = torch.optim.Adam(moving.values(), lr=recipe.rate)
    identity = _identity(language, corpus, recipe)
    history = _resume(path, identity, moving, optimizer)
    language.model.train()
    kept = monotonic()
    try:
        for step in range(len(history), recipe.steps):
            history.append(_step(language, corpus, recipe, step, moving, optimizer))
            tick(step + 1, recipe.steps)
            if stopping() or monotonic() - kept > SECONDS or step + 1 == recipe.steps:
                _keep(path, identity, moving, optimizer, history)
                kept = monotonic()
                if stopping() and step + 1 < recipe.steps:
                    raise Stopped(f"stopped at step {step + 1:,} of {recipe.steps:,}; the same command goes on.")
    finally:
        language.model.eval()
    return history


def _step(
    language: LanguageModel,
    corpus: Corpus,
    recipe: Recipe,
    step: int,
    moving: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
) -> float:
    # Drawn by address, so that going on needs no state of a generator; dropout is given one of its own.
    windows = corpus.windows("train", stream(recipe.seed, "finetune", step), recipe.batch, recipe.length)
    torch.manual_seed(int(torch.randint(2**31, (1,), generator=stream(recipe.seed, "dropout", step))))
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate * min(1.0, (step + 1) / max(1, recipe.steps // 10))
    read = windows_of(windows, language.start).to(language.device)
    logits = language.model(input_ids=read[:, :-1], use_cache=False).logits[:, -recipe.length :].float()
    loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten().to(logits.device))
    value = loss.item()
    if not torch.isfinite(loss):
        raise Diverged(f"the loss is {value} at step {step + 1}; a lower rate may help.")
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(list(moving.values()), CLIP)
    optimizer.step()
    return value


def _moving(language: LanguageModel, recipe: Recipe) -> dict[str, nn.Parameter]:
    """The parameters that training moves, by name; the others are frozen."""
    named = dict(language.model.named_parameters())
    chosen = named if recipe.learn == "all" else language.rule_parameters
    if not chosen:
        raise BadValue("the normalizer has no numbers to learn: take --learn all.")
    for name, p in named.items():
        p.requires_grad_(name in chosen)
    return chosen


def _identity(language: LanguageModel, corpus: Corpus, recipe: Recipe) -> str:
    """Identity of the state: the recipe, the text, and the model with its normalizer's parameters."""
    weights = hashlib.sha256()
    for name, p in sorted(language.model.named_parameters()):
        weights.update(f"{name} {tuple(p.shape)} {p.detach().double().sum().item():.17g}".encode())
    return json.dumps({**asdict(recipe), "text": corpus.sha, "model": weights.hexdigest()}, sort_keys=True)


def _keep(
    path: Path, identity: str, moving: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, history: list[float]
) -> None:
    state = {
        "identity": identity,
        "parameters": {name: p.detach().cpu() for name, p in moving.items()},
        "optimizer": optimizer.state_dict(),
        "history": history,
    }
    write(path, checkpoints.packed(state))


def _resume(
    path: Path, identity: str, moving: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer
) -> list[float]:
    """Goes back to the state that was kept, if there is one; returns the losses of its steps."""
    if not path.exists():
        return []
    state = checkpoints.unpacked(path)
    if state is None:
        raise RunFailed(f"{path} is damaged; remove it, and the fine-tuning begins anew.")
    if state["identity"] != identity:
        raise RunFailed(f"{path} is of another fine-tuning (model, text or recipe); name another folder with --name.")
    kept: dict[str, Tensor] = state["parameters"]
    with torch.no_grad():
        for name, p in moving.items():
            p.copy_(kept[name])
    optimizer.load_state_dict(state["optimizer"])
    history: list[float] = state["history"]
    return history
