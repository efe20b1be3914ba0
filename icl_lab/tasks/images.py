"""Images, read patch by patch: which class is this one of?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Summary, Task, plain
from icl_lab.tasks.capabilities import HasPictures, ReadsFiles, check_unchanged
from icl_lab.tasks.pictures import Pictures, pictures
from icl_lab.tasks.symbols import nats, wrong

MOST = 1_000  # rows of a patch


@registry.add("digits")
@dataclass(frozen=True, kw_only=True)
class Digits(HasPictures, ReadsFiles):
    """Which digit does an image show?

    Formula: patches of p x p pixels, row by row, then a class token of zeros -> the class, at the class token
    Paper: after Dosovitskiy et al. 2021, arXiv 2010.11929

    The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn (the extra ``sklearn``): one in five of
    each class is held out for tests (``part``). Each channel has mean 0 and standard deviation 1 over the training
    images. A prompt is an image; ``length`` counts its patches, 16 of ``patch`` x ``patch`` pixels, and no other length
    is possible. The class token is the last one, so that it sees the whole image under a causal mask too;
    ``model.mask=full`` makes the model a vision transformer.

    Axes: ``noise`` is the standard deviation of normal noise, in that of pixels; ``contrast`` multiplies what pixels
    differ by from the mean of training; ``translation`` moves the image by whole pixels to the left, right, up or down,
    black coming in. Metrics are the ``error`` rate and the ``cross-entropy`` in nats.
    """

    roles: ClassVar[int] = 1
    outputs: ClassVar[int] = 10  # a logit for each class
    # Channels, rows and columns, known without scikit-learn: who lists, plans or estimates runs asks for them.
    shape: ClassVar[tuple[int, int, int]] = (1, 8, 8)
    bidirectional: ClassVar[bool] = True
    worst: ClassVar[float] = 1.0
    headline: ClassVar[str] = "error"
    trivial: ClassVar[tuple[str, ...]] = ("majority",)
    answers: ClassVar[slice] = slice(-1, None)
    heat_map: ClassVar[tuple[str, str]] = ("noise", "translation")
    summary: ClassVar[Summary] = Summary("noise", "beyond")
    axis_labels: ClassVar[Mapping[str, Label]] = {
        "noise": Label("standard deviation of added noise", "noise"),
        "contrast": Label("contrast", "contrast"),
        "translation": Label("pixels that the image is moved by", "moved"),
        "length": Label("patches of an image", "patches"),
    }
    training: ClassVar[dict[str, float]] = {"noise": 0.0, "contrast": 1.0, "translation": 0.0}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "error": "error rate",
        "cross-entropy": "cross-entropy in nats",
    }

    patch: int = 2
    part: Literal["train", "held-out"] = "train"

    def __post_init__(self) -> None:
        require(1 <= self.patch <= MOST, f"patch must be at least 1 and at most {MOST:,}", self.patch)

    @property
    def pictures(self) -> Pictures:
        """The images; raises ``BadValue`` where they cannot be read."""
        return pictures("")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches; raises ``BadValue`` where they do not fill an image."""
        _, h, w = self.shape
        if h % self.patch or w % self.patch:
            known = ", ".join(str(p) for p in range(1, min(h, w) + 1) if not (h % p or w % p))
            raise BadValue(f"patch={self.patch} does not divide images of {h} x {w} pixels: take {known}.")
        return h // self.patch, w // self.patch

    @property
    def patches(self) -> int:
        """Patches of an image."""
        rows, columns = self.grid
        return rows * columns

    @property
    def width(self) -> int:  # type: ignore[override]
        """The pixels of a patch, channel by channel."""
        return self.shape[0] * self.patch**2

    @property
    def axes(self) -> Mapping[str, Axes]:  # type: ignore[override]
        """Shifts of the one length that there is."""
        length = (self.patches,)
        return {
            "full": {
                "noise": (0, 0.5, 1, 2),
                "contrast": (0.25, 0.5, 1, 2),
                "translation": (0, 1, 2),
                "length": length,
            },
            "thin": {"noise": (0, 0.5, 1, 2), "contrast": (0.5, 1), "translation": (0, 1), "length": length},
            "tiny": {"noise": (0, 1), "contrast": (1,), "translation": (0, 1), "length": length},
        }

    @property
    def usual(self) -> Mapping[str, str]:  # type: ignore[override]
        """Prompts of one length."""
        return {f"train.curriculum.{end}": str(self.patches) for end in ("stop", "start")}

    def pins(self) -> Mapping[str, str]:
        return {}

    def reads(self) -> Mapping[str, str]:
        return {self.pictures.name: self.pictures.sha}

    def suites(self) -> dict[str, Task]:
        """The held-out images."""
        return {"": replace(self, part="held-out")}

    def tokens(self, length: int) -> int:
        """The patches and the class token."""
        return length + 1

    def check_length(self, length: int, **shift: float) -> None:
        """An image has all its patches, and is moved by whole pixels within its place."""
        _, _, moved = self.sigmas(shift)
        (rows, columns), (_, h, w) = self.grid, self.shape
        words = f"images of {self.name} have {rows} x {columns} patches: length is {self.patches}"
        require(length == self.patches, words, length)
        most = min(h, w) - 1
        require(moved == int(moved) and moved <= most, f"translation is whole pixels, at most {most}", f"{moved:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw images, none twice before each was drawn, and directions and noise, which shifts stretch."""
        self.check_length(length, **shift)
        noise, contrast, moved = self.sigmas(shift)
        images, labels = self.pictures.part(self.part)
        rounds = [torch.randperm(len(labels), generator=rng) for _ in range(-(-prompts // len(labels)))]
        chosen = torch.cat(rounds)[:prompts]
        way = torch.randint(4, (prompts,), generator=rng)
        x = contrast * self.pictures.scaled(translated(images[chosen], way, int(moved)))
        x += noise * torch.randn(x.shape, generator=rng)
        tokens = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        targets, scored = torch.zeros(2, prompts, length + 1)
        targets[:, -1], scored[:, -1] = labels[chosen].float(), 1
        return Prompt(F.pad(tokens, (0, 0, 0, 1)), targets, scored.bool())

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats."""
        return prompt.mean(nats(outputs, prompt))

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return wrong(outputs, prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"error": errors[:, -1]}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        return {"cross-entropy": nats(outputs, prompt)[:, -1]}

    def references(self) -> dict[str, Predictor]:
        """The most frequent class, the class of the nearest image, and that of the nearest mean image of a class."""
        return {
            "majority": self._answer(lambda x, images, kinds: kinds.sum(0).clamp(min=1).log().expand(len(x), -1)),
            "1-nn": self._answer(lambda x, images, kinds: kinds[torch.cdist(x, images).argmin(1)]),
            "nearest-mean": self._answer(
                lambda x, images, kinds: -torch.cdist(x, kinds.T @ images / kinds.sum(0).clamp(min=1)[:, None])
            ),
        }

    def _answer(self, rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Predictor:
        """Let a rule on images x (b d), training images (n d) and their classes one-hot (n c) give logits (b c)."""

        def predict(prompt: Prompt) -> Tensor:
            images, labels = self.pictures.training
            known = F.unfold(self.pictures.scaled(images), self.patch, stride=self.patch).transpose(1, 2).flatten(1)
            kinds = F.one_hot(labels, self.outputs)
            x = prompt.tokens[:, :-1].flatten(1)
            outputs = x.new_zeros(*prompt.targets.shape, self.outputs)
            outputs[:, -1] = rule(x, known.to(x), kinds.to(x))
            return outputs

        return predict

    def picture(self, prompt: Prompt) -> Tensor:
        tokens = prompt.tokens[:1, :-1].transpose(1, 2)
        return F.fold(tokens, self.shape[1:], self.patch, stride=self.patch)[0].movedim(0, 2)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Each patch with the mean of its pixels; the class token."""
        means = prompt.tokens[0, :-1].mean(1).tolist()
        return [Mark("patch", at, plain(mean), mean) for at, mean in enumerate(means, 1)] + [Mark("class", 1, "")]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        names = self.pictures.classes
        return names[int(outputs[0, t].argmax())], names[int(prompt.targets[0, t])]


@registry.add("images")
@dataclass(frozen=True, kw_only=True)
class Images(Digits):
    """Which class is an image of?

    Formula: patches of p x p pixels, row by row, then a class token of zeros -> the class, at the class token
    Paper: after Dosovitskiy et al. 2021, arXiv 2010.11929

    As ``digits``, with the user's images: ``folder`` has a folder of .png or .jpeg files for each class, of which one
    in five is held out, or is an .npz file of ``x_train``, ``y_train``, ``x_test`` and ``y_test``, images (n h w) or
    (n h w c), the usual form of CIFAR-10. Files are turned as their EXIF orientation says; transparent pixels are
    refused, whose colours no viewer shows. Without ``folder`` the images are those of ``digits``.
    ``sha`` is the hash of the files, so that runs of two versions of a folder are never mixed: it is filled in.
    """

    folder: str = ""
    sha: str = ""

    @cached_property  # to look whether files have changed takes as long as a step of training
    def pictures(self) -> Pictures:
        """The images; raises ``BadValue`` where they cannot be read, or are not those that ``sha`` names."""
        found = pictures(self.folder)
        check_unchanged(found.name, found.sha, self.sha)
        return found

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        return self.pictures.shape if self.folder else super().shape

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.pictures.classes) if self.folder else super().outputs

    def pins(self) -> Mapping[str, str]:
        return {"sha": self.pictures.sha[:12]} if self.folder else {}


def translated(images: Tensor, way: Tensor, pixels: int) -> Tensor:
    """Images (b c h w) moved by ``pixels`` each its own way (b): 0 left, 1 right, 2 up, 3 down; 0 comes in."""
    h, w = images.shape[2:]
    wide = F.pad(images, 4 * [pixels])
    corners = ((pixels, 2 * pixels), (pixels, 0), (2 * pixels, pixels), (0, pixels))
    moved = torch.stack([wide[..., top : top + h, left : left + w] for top, left in corners])
    return moved[way, torch.arange(len(images))]
