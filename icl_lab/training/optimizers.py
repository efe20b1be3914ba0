"""Optimizers: Adam, AdamW, Muon for the matrices of the blocks; optional moving average of the parameters."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from icl_lab.training.muon import Muon
from icl_lab.training.recipe import TrainSpec
from icl_lab.training.scaling import WHOLE, ScaledRows

RAMP = 10  # the weight of an average's past is at most (1 + steps) / (RAMP + steps): at first it forgets its start


class Optimizer:
    """The optimizers of a training as one, with an optional running average of the parameters.

    Formula: Adam (Kingma & Ba, arXiv 1412.6980); AdamW, decay apart from the gradient (Loshchilov & Hutter, arXiv
    1711.05101), by ``torch.optim``; Muon, as in ``training.muon``

    ``matrices`` names the weights of linear maps inside the blocks: Muon moves them, and decay shrinks them; all other
    numbers are left to Adam, without decay. ``parts`` names the parameters whose rows have separate rates
    (``training/scaling.py``).
    """

    def __init__(
        self,
        recipe: TrainSpec,
        parameters: Mapping[str, nn.Parameter],
        matrices: Collection[str],
        parts: Mapping[str, Sequence[ScaledRows]] | None = None,
    ) -> None:
        learned = {name: p for name, p in parameters.items() if p.requires_grad}
        self.params, self.ema = list(learned.values()), recipe.ema
        self.average: list[Tensor] = []  # of the numbers, from the first step on
        self.ema_steps = 0  # steps that the average has seen
        self.views: list[tuple[nn.Parameter, nn.Parameter, slice]] = []  # a part, its parameter, its place there
        self.muon: Muon | None = None
        self.rate: float | Tensor = recipe.rate
        by_muon, by_adam = list[tuple[nn.Parameter, float]](), defaultdict[tuple[bool, float], list[nn.Parameter]](list)
        for name, p in learned.items():
            for part in (parts or {}).get(name, [ScaledRows()]):
                if recipe.optimizer == "muon" and name in matrices:
                    by_muon.append((self._view(p, part.rows), part.rate))
                else:
                    decays = recipe.optimizer == "adamw" and name in matrices
                    by_adam[decays, part.rate].append(self._view(p, part.rows))
        if recipe.optimizer == "muon":
            self.muon = Muon([p for p, _ in by_muon], recipe.decay, [factor for _, factor in by_muon])
            self.ratio = recipe.muon_rate / recipe.rate
        kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
        groups = sorted(by_adam.items(), key=lambda group: not group[0][0])  # those that decay first
        self.factors = [factor for (_, factor), _ in groups]  # of Adam's rate, one for each group
        # Decay is a share of the recipe's rate, whatever the factor of a part: as Muon's, and that of microsoft/mup.
        shrunk = [
            {"params": of, "weight_decay": recipe.decay / factor if decays else 0.0} for (decays, factor), of in groups
        ]
        self.adam = kind(shrunk, fused=True)

    def _view(self, p: nn.Parameter, place: slice) -> nn.Parameter:
        """Part of a parameter that shares its memory; the parameter itself where the part is all of it."""
        if place == WHOLE:
            return p
        view = nn.Parameter(p.detach()[place])
        self.views.append((view, p, place))
        return view

    def set_rate(self, rate: float | Tensor) -> None:
        """Set the rate of Adam; that of Muon keeps its ratio to it, parts of parameters their factors.

        A tensor is read at every step: who fills it anew changes all rates.
        """
        self.rate = rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Move every number that has a gradient."""
        for view, p, place in self.views:
            view.grad = None if p.grad is None else p.grad[place]
        for group, factor in zip(self.adam.param_groups, self.factors, strict=True):
            group["lr"] = self.rate if factor == 1 else self.rate * factor
        self.adam.step()
        if self.muon is not None:
            for group in self.muon.param_groups:
                group["lr"] = self.rate * self.ratio
            self.muon.step()

    @torch.no_grad()
    def update_ema(self) -> None:
        """Update the exponential moving average of the parameters, where one is kept.

        Formula: a_1 = theta_1; a_t = r_t a_{t-1} + (1 - r_t) theta_t with r_t = min(ema, (1 + t) / (10 + t)), t >= 2,
        where theta_t are the parameters after step t; a is undefined before the first step
        """
        if not self.ema:
            return
        if not self.average:
            self.average = [p.detach().clone() for p in self.params]
        self.ema_steps += 1
        past = min(self.ema, (1 + self.ema_steps) / (RAMP + self.ema_steps))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.params], 1 - past)

    @torch.no_grad()
    def load_ema(self) -> None:
        """Load the average into the parameters, for tests. Without one, or before the first step, they stay."""
        for p, mean in zip(self.params, self.average, strict=bool(self.average)):
            p.copy_(mean)

    def take_over(self, before: "Optimizer") -> None:
        """Take what another optimizer knows of parameters that are still there."""
        old = {(p, str(place)): view for view, p, place in before.views}
        same = {view: old[key] for view, p, place in self.views if (key := (p, str(place))) in old}
        for mine, theirs in ((self.adam, before.adam), (self.muon, before.muon)):
            if mine is not None and theirs is not None:
                own = [p for group in mine.param_groups for p in group["params"]]
                mine.state.update({p: theirs.state[same.get(p, p)] for p in own if same.get(p, p) in theirs.state})
        if before.average:
            means = dict(zip(before.params, before.average, strict=True))
            self.average = [means.get(p, p.detach().clone()) for p in self.params]
            self.ema_steps = before.ema_steps

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, but for the numbers themselves."""
        state: dict[str, Any] = {"adam": self.adam.state_dict(), "average": self.average, "moves": self.ema_steps}
        return state if self.muon is None else {**state, "muon": self.muon.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what ``state_dict`` returned; what versions before Muon wrote is the state of Adam alone."""
        if "adam" not in state:
            state = {"adam": state, "average": [], "moves": 0}
        self.adam.load_state_dict(state["adam"])
        if self.muon is not None:
            self.muon.load_state_dict(state["muon"])
        means = state["average"]  # none, or one for each parameter
        self.average = [mean.to(p.device, copy=True) for mean, p in zip(means, self.params, strict=bool(means))]
        self.ema_steps = state["moves"]
