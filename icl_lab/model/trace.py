"""Activations of one forward pass by name: read, labelled, and replaced (activation patching, arXiv 2309.16042)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue, LabError, UnknownName

Patch = Tensor | Callable[[Tensor], Tensor]

STREAM = ("prompt", "token", "width")
# The last part of a name to the dimensions.
DIMS = {
    "before": STREAM,
    "q": ("prompt", "head", "query", "channel"),
    "k": ("prompt", "head", "key", "channel"),
    "v": ("prompt", "head", "key", "channel"),
    "scores": ("prompt", "head", "query", "key"),
    "weights": ("prompt", "head", "query", "key"),
    "heads": ("prompt", "head", "query", "channel"),
    "attention": STREAM,
    "mlp": STREAM,
    "after": STREAM,
    "final_norm": STREAM,
    "answers": ("prompt", "token", "answer"),
}


class UnknownActivation(UnknownName, KeyError):
    """A name that no activation of this model has."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class Trace(Mapping[str, Tensor]):
    """Activations of a forward pass by name, in the order in which they were computed.

    Each layer has ``layers.L.`` and, of b prompts of t tokens and h heads of width d,

    * ``before`` and ``after``, the residual stream around the block, (b t h*d);
    * ``q``, ``k`` (after norms and position code) and ``v``, (b h t d);
    * ``scores`` q.k / sqrt(d), with the bias of a position code, and the normalizer's ``weights``, (b h t t), query by
      key;
    * ``heads``, what each head contributes before the output projection, (b h t d);
    * ``attention`` and ``mlp``, what both add to the residual stream, (b t h*d).

    ``final_norm`` is what the read-out reads, (b t h*d), and ``answers`` are the outputs, (b t c). Scores of keys that
    a row does not see mean nothing. A part that the model does not have has no name.
    """

    def __init__(self, found: Mapping[str, Tensor]) -> None:
        self._found = dict(found)

    @property
    def names(self) -> list[str]:
        """Names of the activations."""
        return list(self._found)

    def to_xarray(self, name: str) -> Any:
        """Return an xarray ``DataArray`` with named dimensions, such as prompt, head, query and key.

        Raises ``LabError`` where xarray is not installed.
        """
        try:
            import xarray
        except ImportError:
            raise LabError("to_xarray needs xarray, which is not installed: pip install 'icl_lab[notebook]'") from None
        return xarray.DataArray(self[name].detach().cpu().numpy(), dims=DIMS[name.rpartition(".")[2]], name=name)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._found:
            raise UnknownActivation("activation", name, self._found)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return "\n".join(f"{name:20} {tuple(x.shape)}" for name, x in self.items())


class Recorder:
    """Keeps the activations of a pass that match a pattern, and puts others in the place of some: a ``blocks.See``."""

    def __init__(self, patch: Mapping[str, Patch], only: Sequence[str]) -> None:
        self._patch, self._only = patch, [only] if isinstance(only, str) else only
        if odd := [name for name in (*self._patch, *self._only) if not isinstance(name, str)]:
            raise BadValue(f"An activation is called by a name such as 'layers.0.heads', not by {odd[0]!r}.")
        self._names: list[str] = []
        self._kept: dict[str, Tensor] = {}

    def __call__(self, name: str, x: Tensor) -> Tensor:
        """Return the replacement of activation ``x``."""
        self._names.append(name)
        if name in self._patch:
            x = _patched(name, x, self._patch[name])
        if any(fnmatchcase(name, pattern) for pattern in self._only):
            self._kept[name] = x
        return x

    def trace(self) -> Trace:
        """Return the recorded activations; raises ``UnknownActivation`` for a name that no activation has."""
        for name in (*self._patch, *(pattern for pattern in self._only if "*" not in pattern)):
            if name not in self._names:
                raise UnknownActivation("activation", name, self._names)
        return Trace(self._kept)


def _patched(name: str, own: Tensor, patch: Patch) -> Tensor:
    """Return the replacement of an activation: the very same tensor where nothing changes."""
    new = patch(own.clone()) if callable(patch) else patch
    if not isinstance(new, Tensor) or new.shape != own.shape or new.is_complex() or new.is_meta:
        found = f"no tensor but {type(new).__name__}"
        if isinstance(new, Tensor):
            found = f"{tuple(new.shape)}" + " of complex numbers" * new.is_complex() + " without values" * new.is_meta
        raise BadValue(f"The activation '{name}' is {tuple(own.shape)}, and its patch is {found}.")
    # A tensor that is to get a gradient is used as it is, even if it holds the activation's own values.
    trained = isinstance(patch, Tensor) and patch.requires_grad
    return own if torch.equal(new := new.to(own), own) and not trained else new
