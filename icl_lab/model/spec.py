"""Specification of a model: the fields that its shape depends on. Loads no torch."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Norm = Literal["layer", "rms", "none"]


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a model. The three switches leave the residual stream as it is where a part is off.

    ``block=llama`` is the block of arXiv 2501.19399: RMSNorm, SwiGLU of width 8d/3, no biases. ``qk_norm`` norms the
    queries and keys of each head (arXiv 2010.04245), which bounds their scores.

    ``norm_in`` puts a norm of the family after the read-in and the positions, before the first block, whatever ``norm``
    says. Without it the residual stream of a token grows with its number while what attention adds stays bounded, so
    that the final norm divides the context away; with it a number of any size enters with the same norm. BERT has a
    norm there (arXiv 1810.04805), GPT-2 has none.

    ``final_norm`` is the norm before the read-out: that of the blocks (``block``), ``layer``, ``rms`` or ``none``. It
    bounds every answer (see ``GPT2.answer_bound``). A value that names the blocks' own norm is kept as ``block``, so
    that one model has one specification.

    ``mask=full`` is bidirectional attention (BERT): every token sees all tokens of its prompt. It is for tasks whose
    answers do not stand among the tokens.

    ``read_in=scaled`` rescales the prompts before they are read, in training and in tests, as ``test.rescale`` does in
    tests alone (labels or inputs, by task: see ``icl_lab/base/rescale.py``).

    ``read_in_start`` multiplies the read-in's weights at the start, and so the size of a token relative to its
    position. ``read_out_start`` multiplies those of the read-out, and so the bound C at the start
    (``GPT2.answer_bound``).
    """

    layers: Annotated[int, Meta(ge=1, le=1000)] = 2
    heads: Annotated[int, Meta(ge=1, le=4096)] = 4
    width: Annotated[int, Meta(ge=1, le=65_536)] = 64
    positions: str = "learned"
    roles: Literal["shared", "tagged"] = "shared"
    mlp: bool = True
    attention: bool = True
    norm: bool = True
    block: Literal["gpt2", "llama"] = "gpt2"
    qk_norm: bool = False
    norm_in: bool = False
    final_norm: Literal["block", "layer", "rms", "none"] = "block"
    read_in: Literal["linear", "scaled"] = "linear"
    mask: Literal["causal", "full"] = "causal"
    read_in_start: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    read_out_start: Annotated[float, Meta(gt=0, le=1000)] = 1.0

    def __post_init__(self) -> None:
        if self.final_norm == self.norm_of_blocks:
            msgspec.structs.force_setattr(self, "final_norm", "block")
        if self.width % self.heads:
            raise ValueError(f"heads must divide width, got {self.heads} heads and width {self.width}")

    @property
    def norm_of_family(self) -> Norm:
        """Norm that the block family uses: layer norm (GPT-2) or RMS norm (Llama)."""
        return "rms" if self.block == "llama" else "layer"

    @property
    def norm_of_blocks(self) -> Norm:
        """Norm before each part of a block."""
        return self.norm_of_family if self.norm else "none"

    @property
    def norm_before_read_out(self) -> Norm:
        """Final norm, resolved."""
        return self.norm_of_blocks if self.final_norm == "block" else self.final_norm
