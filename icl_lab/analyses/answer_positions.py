"""Positions of answers in a prompt: steps of half an octave, within training and beyond it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

SHARE = 0.25  # of the places within training, and of all: the last ones are the ends


@dataclass(frozen=True)
class AnswerPositions:
    """The answers of a prompt by the tokens that are read before them, the asked one among these; q answers.

    ``trained`` counts the tokens of the longest prompt of training, or of whatever counts as near; the first
    ``skipped`` answers are in no number.
    """

    read: tuple[int, ...]
    trained: int
    skipped: int = 0

    @cached_property
    def tokens(self) -> np.ndarray:
        """Number of tokens that are read before each answer that counts."""
        return np.asarray(self.read)[self.skipped :]

    @cached_property
    def steps(self) -> dict[float, Tensor]:
        """Upper end of each half octave -> the answers in it, as indices of errors (b q); empty ones are left out."""
        step = np.ceil(np.round(2 * np.log2(self.tokens), 9)).astype(int)
        return {
            float(f"{2 ** (each / 2):.6g}"): torch.from_numpy(np.flatnonzero(step == each) + self.skipped)
            for each in np.unique(step)
        }

    def ends(self, errors: Tensor) -> dict[str, Tensor]:
        """Errors (b q) -> the mean of each prompt within and beyond, at both ends, and the rise between these, (b).

        Without answers beyond there are only ``within`` and ``end-of-training``.
        """
        known = errors[:, self.skipped :]
        inside = int((self.tokens <= self.trained).sum())
        last = known[:, inside - max(1, round(SHARE * inside)) : inside].mean(1)
        found = {"within": known[:, :inside].mean(1), "end-of-training": last}
        if inside < known.shape[1]:
            end = known[:, -max(1, round(SHARE * known.shape[1])) :].mean(1)
            found |= {"beyond": known[:, inside:].mean(1), "end": end, "rise": end - last}
        return found
