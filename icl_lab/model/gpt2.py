"""A small GPT-2 that reads numbers through a linear map, or whole numbers through an embedding."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.base.learned import Place
from icl_lab.base.rescale import Rescaling
from icl_lab.model import positions
from icl_lab.model.blocks import Attention, Block, See, Shape, no_autocast, norm, unseen
from icl_lab.model.bound import LAST, answer_bound
from icl_lab.model.spec import ModelSpec as ModelSpec
from icl_lab.model.trace import Patch, Recorder, Trace
from icl_lab.normalizers.base import Normalizer, causal, full
from icl_lab.tasks.base import Prompt

# Is handed a layer, its weights and its scores q.k / sqrt(d), both (b h t t); what it returns is used as weights.
Watch = Callable[[int, Tensor, Tensor], Tensor | None]

EVERYWHERE = slice(None)
GPT2_VOCABULARY = 50_257  # rows of a token table that Hugging Face allocates and numeric prompts never touch


@dataclass(frozen=True)
class TokenSpec:
    """Input and output of a model: numbers in a token and in an answer, roles in turn, tokens of the longest prompt.

    Where ``vocabulary`` is not 0, tokens are whole numbers below it. ``rescaling`` is what ``read_in=scaled`` does.
    """

    width: int
    outputs: int
    roles: int
    train_tokens: int
    vocabulary: int = 0
    rescaling: Rescaling | None = None


class GPT2(nn.Module):
    """Pre-LN decoder blocks between a linear read-in and a linear read-out (arXiv 2208.01066, 2508.14685).

    Tokens that are whole numbers are read by an embedding, N(0, 0.02) as in GPT-2, in place of the linear read-in.

    As ``GPT2Model`` of Hugging Face transformers: gelu_new, final layer norm, weights N(0, 0.02), residual projections
    N(0, 0.02 / sqrt(2 layers)), biases 0, no dropout. The read-in and read-out start as ``torch.nn.Linear`` does, as in
    the published code. With ``roles=tagged`` the read-in adds a learned vector for each role (x, y), which otherwise
    only the position distinguishes.
    """

    def __init__(self, spec: ModelSpec, reading: TokenSpec, attn: str, rng: torch.Generator) -> None:
        super().__init__()
        self.spec, self.reading, self.attn = spec, reading, attn
        self.rescaling = reading.rescaling if spec.read_in == "scaled" else None
        words = reading.vocabulary
        self.read_in = nn.Embedding(words, spec.width) if words else nn.Linear(reading.width, spec.width)
        self.roles = nn.Parameter(torch.zeros(reading.roles, spec.width)) if spec.roles == "tagged" else None
        self.positions = positions.build(spec.positions, spec.width, spec.width // spec.heads, reading.train_tokens)
        self.positions.both_sides = spec.mask == "full"
        rules = self._rules(attn) if spec.attention else [None] * spec.layers
        self.norm_in = norm(spec.norm_of_family if spec.norm_in else "none", spec.width)
        shape = Shape(spec.width, spec.heads, spec.block == "llama", spec.mlp, spec.norm_of_blocks, spec.qk_norm)
        self.blocks = nn.ModuleList(Block(shape, rule) for rule in rules)
        self.norm = norm(spec.norm_before_read_out, spec.width)
        self.read_out = nn.Linear(spec.width, reading.outputs)
        self._start(spec.layers, rng)

    def forward(
        self,
        tokens: Tensor,
        watch: Watch | None = None,
        answers: slice = EVERYWHERE,
        places: Tensor | None = None,
    ) -> Tensor:
        """Tokens (b t w), or (b t) of whole numbers, -> outputs (b t c).

        ``watch`` is handed each layer's attention weights and scores, both (b h t t), and may return other weights to
        be used.

        Where only some tokens are asked for an answer, ``answers`` spares the rest what nobody reads: the last block's
        MLP and the read-out. Their outputs are 0. ``places`` (t) says where the tokens stand, if not one after another.

        Raises ``BadValue`` when there are more tokens than the position code can tell apart.
        """
        where = self.places(tokens.shape[1], None, tokens.device) if places is None else places
        see = unseen if watch is None else _watching(watch)
        return self.forward_tensors(tokens, self.visible(tokens.shape[1], tokens.device), where, see, answers)

    def answer_queries(self, context: Tensor, queries: Tensor) -> Tensor:
        """Answers (b q c) to queries (b q w), each asked by itself right after the context (b t w) that they share.

        One pass reads the context once: a query sees it and itself, at the place and in the role of the token that
        comes next. The answers are those to q prompts of t + 1 tokens, to rounding, where ``queries_apart``. Tokens may
        lie on another device than the model.
        """
        t, device = context.shape[1], self.read_in.weight.device
        step = 1 if self.roles is None else len(self.roles)  # tokens of other roles stand between, seen by none
        asked = queries.new_zeros(len(queries), step * queries.shape[1], queries.shape[2])
        asked[:, ::step] = queries
        places = self.places(t + 1, None, device)
        where = torch.cat((places[:t], places[t:].expand(asked.shape[1])))
        visible = torch.eye(len(where), dtype=torch.bool, device=device)
        visible[:t, :t], visible[t:, :t] = self.visible(t, device), True
        return self.forward_tensors(torch.cat((context, asked), 1).to(device), visible, where)[:, t::step]

    @property
    def queries_apart(self) -> bool:
        """True if ``answer_queries`` answers as one prompt a query does.

        It does not where a normalizer depends on the order of the keys, where an answer depends on later tokens, or
        where prompts are rescaled.
        """
        return self.prefix_consistent and self.rescaling is None and not any(rule.ordered for rule in self.rules)

    def trace(
        self,
        prompt: Tensor | Prompt,
        patch: Mapping[str, Patch] | None = None,
        *,
        only: Sequence[str] = ("*",),
        gradients: bool = False,
    ) -> Trace:
        """Return the activations of a forward pass by name, with those in ``patch`` replaced.

        ``prompt`` is a ``Prompt`` or its tokens, (b t w) or (b t) whole numbers. ``patch`` maps a name to a tensor of
        the activation's shape, or to a function that is handed a copy of it and returns such a tensor; all that is
        computed later is computed from it. What equals the activation changes no answer in any bit. ``only`` takes
        names or patterns, to save memory: ``["layers.*.weights"]``. With ``gradients=True`` activations keep their
        graph, for ``torch.autograd.grad``.

        Where prompts are rescaled, the activations are those of the pass over the rescaled tokens, and answers before
        the scale is known do not depend on them.

        Raises ``BadValue`` for a prompt or a patch that does not fit, and ``UnknownName`` for a name that is none.

        >>> import torch
        >>> model = GPT2(ModelSpec(), TokenSpec(1, 1, 2, 20), "ssa", torch.Generator())
        >>> clean = model.trace(torch.randn(4, 20, 1))
        >>> clean["layers.0.weights"].shape
        torch.Size([4, 4, 20, 20])
        >>> patched = model.trace(torch.randn(4, 20, 1), {"layers.1.heads": clean["layers.1.heads"]})
        >>> torch.equal(patched["layers.1.attention"], clean["layers.1.attention"])
        True
        """
        tokens = self._readable(prompt.tokens if isinstance(prompt, Prompt) else prompt)
        t, device = tokens.shape[1], tokens.device
        record = Recorder(patch or {}, only)
        with torch.set_grad_enabled(gradients):
            where = self.places(t, None, device)
            record("answers", self.forward_tensors(tokens, self.visible(t, device), where, record))
        return record.trace()

    def _readable(self, tokens: Tensor) -> Tensor:
        """Return tokens where the model lies, numbers in its precision; raises ``BadValue`` where they do not fit."""
        if not isinstance(tokens, Tensor):
            raise BadValue(f"A model reads a Prompt or a tensor of tokens, not {type(tokens).__name__}.")
        words, width, weight = self.reading.vocabulary, self.reading.width, self.read_in.weight
        fits = tokens.numel() > 0 and not tokens.is_complex() and not tokens.is_meta
        if words:
            wanted = f"(b, t) of whole numbers from 0 to {words - 1}"
            fits = fits and tokens.ndim == 2 and not tokens.is_floating_point()
            fits = fits and bool(((tokens >= 0) & (tokens < words)).all())
        else:
            wanted, fits = f"(b, t, {width}) of numbers", fits and tokens.ndim == 3 and tokens.shape[2] == width
        if not fits:
            found = f"{tuple(tokens.shape)} of {tokens.dtype}" + " without values" * tokens.is_meta
            raise BadValue(f"This model reads tokens {wanted}, not {found}.")
        return tokens.to(weight.device if words else weight)

    def places(self, t: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
        """Return the places (t) at which the position code sets the tokens; in training ``rng`` draws random ones.

        Raises ``BadValue`` when there are more tokens than the position code can tell apart.
        """
        limit = self.positions.limit
        if limit is not None and t > limit:
            raise BadValue(
                f"{t} tokens do not fit into the {limit} places of {self.spec.positions}; shorten the prompt or take "
                "another position code."
            )
        return self.positions.where(t, rng, device)

    def visible(self, t: int, device: torch.device | str = "cpu") -> Tensor:
        """Mask of a prompt of t tokens, (t t) bool, row by key: causal or full."""
        return full(t, device) if self.spec.mask == "full" else causal(t, device)

    def forward_tensors(
        self, tokens: Tensor, visible: Tensor, where: Tensor, see: See = unseen, answers: slice = EVERYWHERE
    ) -> Tensor:
        """``forward`` of tensors alone: tokens as there, the mask ``visible`` of their number, their places (t).

        Where a caller has autocast on, numbers are still read in and out as they are: half a precision is enough for
        the blocks, not for the digits of a prompt.

        Where prompts are rescaled, ``see`` is shown the pass over the rescaled tokens.
        """
        if self.rescaling is None:
            return self._forward(tokens, visible, where, see, answers)
        scaled, factor, start = self.rescaling(tokens)
        outputs = self._forward(scaled, visible, where, see, answers) * factor
        if not start:
            return outputs
        # Before the scale is known, an answer is that to the first tokens as they are, which no later one can change.
        first = min(start, tokens.shape[1])
        early = self._forward(tokens[:, :first], visible[:first, :first], where[:first], unseen, answers)
        return torch.cat((early, outputs[:, first:]), 1)

    def _forward(self, tokens: Tensor, visible: Tensor, where: Tensor, see: See, answers: slice) -> Tensor:
        with no_autocast(tokens):
            x = self.read_in(tokens)
        if self.roles is not None:
            t, roles = tokens.shape[1], len(self.roles)
            if torch.compiler.is_exporting():  # a graph for every length cannot prove that the repeats are enough
                x = x + self.roles[torch.arange(t, device=tokens.device) % roles]
            else:
                x = x + self.roles.repeat(-(-t // roles), 1)[:t]
        x = self.norm_in(self.positions.place(x, where))
        turn = lambda q, k: self.positions.turn(q, k, where)  # noqa: E731
        bias = self.positions.bias(where)
        for layer, block in enumerate(self.blocks):
            seen = unseen if see is unseen else partial(_see_in_layer, see, layer)
            x = block(x, visible, turn, seen, answers if layer == len(self.blocks) - 1 else EVERYWHERE, bias)
        with no_autocast(tokens):
            read = self.read_out(see("final_norm", self.norm(x)))
        if answers == EVERYWHERE:
            return cast(Tensor, read)
        outputs = read.new_zeros(*tokens.shape[:2], read.shape[2])
        outputs[:, answers] = read
        return cast(Tensor, outputs)

    def swap_rule(self, attn: str) -> None:
        """Put another normalizer, with its parameters at their start, in the place of every layer's own."""
        if not self.spec.attention:
            raise BadValue(f"a model without attention has no normalizer to swap for {attn}.")
        device = self.read_in.weight.device
        for block, rule in zip(self.blocks, self._rules(attn), strict=True):
            cast(Attention, cast(Block, block).attention).rule = rule.to(device)
        self.attn = attn

    def swap_positions(self, code: str) -> None:
        """Read prompts with another code than in training; raises ``BadValue`` where one has learned vectors."""
        spec = self.spec
        other = positions.exchange(
            spec.positions, code, spec.width, spec.width // spec.heads, self.reading.train_tokens
        )
        for rule in self.rules:
            positions.check_scores(other, rule)
        other.both_sides = self.positions.both_sides
        self.positions = other.to(self.read_in.weight.device)

    def _rules(self, attn: str) -> Sequence[Normalizer]:
        spec = self.spec
        site = {"heads": spec.heads, "head_dim": spec.width // spec.heads, "train_tokens": self.reading.train_tokens}
        rules = [cast(Normalizer, rule) for rule in normalizers.build_layers(attn, layers=spec.layers, **site)]
        for rule in rules:
            positions.check_scores(self.positions, rule)
            check_mask(spec, rule)
        return rules

    @property
    def prefix_consistent(self) -> bool:
        """True if an answer depends on nothing that comes after it, not even on how much does."""
        if self.spec.mask == "full":
            return False
        parts = [part for part in self.modules() if isinstance(part, Normalizer | positions.Positions)]
        return all(part.prefix_consistent for part in parts)

    def bytes_a_prompt(self, t: int) -> float:
        """Upper estimate of the memory of a forward pass without gradients, in bytes for one prompt of ``t`` tokens."""
        spec, reading = self.spec, self.reading
        # Logits over a vocabulary may be the largest thing there is; a few numbers are negligible against the blocks.
        answers = 8.0 * t * reading.outputs if reading.vocabulary else 0.0
        return 4.0 * t * (5 * spec.heads * t + 12 * spec.width) + answers

    @property
    def rules(self) -> list[Normalizer]:
        """Each layer's own normalizer; none in a model without attention."""
        attentions = [cast(Block, block).attention for block in self.blocks]
        return [attention.rule for attention in attentions if attention is not None]

    def answer_bound(self) -> tuple[Tensor, Tensor]:
        """Centre c and bound C of the answers, each (outputs,): |answer - c| <= C for every prompt and any normalizer.

        Formula: C = sqrt(d) ||(I - 11'/d)(g * w)|| (layer norm), sqrt(d) ||g * w|| (RMS norm): see ``model/bound.py``

        C is infinite without a final norm. Where prompts are rescaled, both hold of answers before these are multiplied
        back.
        """
        parameters = dict(self.named_parameters())
        return answer_bound(
            {name: parameters[name] for name in LAST if name in parameters}, self.spec.norm_before_read_out
        )

    def learned(self) -> dict[str, float]:
        """Learned parameters of the normalizers, by formula name, layer and head: ``{"s 0.1": 0.43}``.

        A parameter that all layers share (a vector over n) is left out.
        """
        found: dict[str, float] = {}
        for layer, rule in enumerate(self.rules):
            for name in rule.learned:
                if name not in rule.shared:
                    values = cast(Tensor, getattr(rule, name)).detach().reshape(-1).tolist()
                    found |= {str(Place(name, layer, head)): value for head, value in enumerate(values)}
        return found

    def matrices(self) -> list[str]:
        """The names of the weights of linear maps inside the blocks, those of normalizers apart."""
        return [
            f"blocks.{name}.weight"
            for name, part in self.blocks.named_modules()
            if isinstance(part, nn.Linear) and ".rule." not in name
        ]

    def parameter_count(self) -> int:
        """The working parameters: every number that training can move."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def parameter_count_of_paper(self) -> int:
        """The working parameters and the unused token table, as arXiv 2508.14685 counts (22.5M for 9.6M)."""
        return self.parameter_count() + GPT2_VOCABULARY * self.spec.width

    @torch.no_grad()
    def _start(self, layers: int, rng: torch.Generator) -> None:
        # The normalizers keep the start that they chose: a blanket initialisation would overwrite s, n and b.
        for name, p in self.named_parameters():
            if ".rule." in name:
                continue
            part = getattr(self, name.partition(".")[0])
            if name.startswith(("read_in", "read_out")) and isinstance(part, nn.Linear):
                bound = float(part.in_features**-0.5)
                p.uniform_(-bound, bound, generator=rng)
            elif name.endswith("project.weight"):
                p.normal_(0, 0.02 / math.sqrt(2 * layers), generator=rng)
            elif p.ndim == 2:
                p.normal_(0, 0.02, generator=rng)
            elif name.endswith("bias"):
                p.zero_()
            if name == "read_in.weight":
                p.mul_(self.spec.read_in_start)
            if name == "read_out.weight":
                p.mul_(self.spec.read_out_start)


def check_mask(spec: ModelSpec, normalizer: Normalizer) -> None:
    """Raise ``BadValue`` where a model sees both sides and a normalizer counts from earlier keys alone."""
    if spec.mask == "full" and normalizer.one_sided:
        raise BadValue(
            f"{normalizer.title} counts from earlier tokens alone, so model.mask=full has no meaning for it."
        )


def _see_in_layer(see: See, layer: int, name: str, x: Tensor) -> Tensor:
    return see(f"layers.{layer}.{name}", x)


def _watching(watch: Watch) -> See:
    """Show a watcher the weights and scores of each layer, and nothing else."""
    kept: list[Tensor] = []

    def see(name: str, x: Tensor) -> Tensor:
        if name.endswith(".scores"):
            kept.append(x)
        if name.endswith(".weights"):
            other = watch(int(name.split(".")[1]), x, kept.pop())
            return x if other is None else other
        return x

    return see
