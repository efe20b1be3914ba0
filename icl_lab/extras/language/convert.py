"""A model that was trained here on text, as a model of transformers: its weights, its normalizer and a tokenizer.

Imported only where a model is exported.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.utils import logging

from icl_lab.base.errors import BadValue
from icl_lab.base.files import check_new, staged_prefix, staging, swap_folder, writing
from icl_lab.model import positions
from icl_lab.model.blocks import MLP, Attention, Block
from icl_lab.model.gpt2 import GPT2, ModelSpec
from icl_lab.tasks.texts.corpus import Corpus
from icl_lab.tasks.texts.grammar import Words
from icl_lab.transformers import attention, placing

END = 0  # byte that ends a text and pads it: no text that is read here holds it


def save(model: GPT2, corpus: Corpus, folder: Path, card: str = "") -> None:
    """Write a language model, its tokenizer and a model card to a new folder, as ``save_pretrained`` does.

    Raises ``BadValue`` where no architecture of transformers computes what this model does, or where the folder holds
    something, and ``RunFailed`` where it cannot be written.
    """
    check_new(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    made, reads = converted(model), tokenizer(corpus)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with staging(folder.parent, staged_prefix(folder)) as staged:
            whole = staged / folder.name
            whole.mkdir()
            (whole / "README.md").write_text(card, encoding="utf-8")
            made.save_pretrained(whole)
            reads.save_pretrained(whole)
            swap_folder(folder, whole)


def converted(model: GPT2) -> Any:
    """Return a causal language model of transformers that gives the same logits, up to rounding.

    Learned positions make a GPT-2, rotary ones a GPT-NeoX without parallel residual. Both have read-outs without a
    shift; ours has one, which goes into the final norm and the read-out (see ``without_shift``).

    Raises ``BadValue`` where a field of the model or its normalizer has no counterpart.
    """
    check(model)
    with torch.no_grad():
        made = _neox(model) if isinstance(model.positions, positions.Rotary) else _gpt2(model)
        placing.install(made, model.attn, train_tokens=model.reading.train_tokens)
        for ours, theirs in zip(model.rules, attention.rules(made).values(), strict=True):
            theirs.load_state_dict(ours.state_dict())
    return made.eval()


def check(model: GPT2) -> None:
    """Raise ``BadValue`` where GPT-2 and GPT-NeoX have no counterpart of a field of the model."""
    if not model.reading.vocabulary:
        raise BadValue("the model reads numbers, not tokens of a text: only models of the task text are exported.")
    spec, code = model.spec, model.positions
    plain = ModelSpec(spec.layers, spec.heads, spec.width, spec.positions, read_in_start=spec.read_in_start)
    for name, value in msgspec.structs.asdict(spec).items():
        if value != getattr(plain, name):
            raise BadValue(f"model.{name}={value} has no counterpart in GPT-2 and GPT-NeoX of transformers.")
    ntk = isinstance(code, positions.Rotary) and code.ntk
    if not isinstance(code, positions.Learned | positions.Rotary) or code.random or ntk:
        raise BadValue(
            f"model.positions={spec.positions} has no counterpart in GPT-2 and GPT-NeoX of transformers, which have "
            "learned and rotary positions, one after another."
        )


def without_shift(norm: nn.LayerNorm, read_out: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """Weight and bias of a layer norm, and of a read-out without a shift, (d), (d) and (c, d), of the same logits.

    Formula: U = W diag(g); LN'(x) = n + 1, W' = U + (s + W b - U 1) 1' / d, with n the normalised x and s the shift.
    The numbers of n sum to 0, so that 1' (n + 1) / d = 1, and W' (n + 1) = U n + W b + s = W (g n + b) + s.
    """
    weight, d = read_out.weight.double(), norm.weight.numel()
    scaled = weight * norm.weight.double()
    rest = read_out.bias.double() + weight @ norm.bias.double() - scaled.sum(1)
    one = torch.ones_like(norm.weight)
    return one, one.clone(), (scaled + rest.unsqueeze(1) / d).to(read_out.weight.dtype)


def tokenizer(corpus: Corpus) -> Any:
    """Return the tokenizer of a corpus as transformers takes it; of bytes one whose tokens are the 256 bytes.

    Raises ``BadValue`` for the words of the grammar.
    """
    if isinstance(corpus.tokenizer, Words):
        raise BadValue(
            "the words of the grammar are no tokenizer of transformers: train on bytes, or a tokenizer.json."
        )
    if corpus.tokenizer is None:
        spelled: dict[int, str] = bytes_to_unicode()  # type: ignore[no-untyped-call]
        made = Tokenizer(models.BPE({spelled[byte]: byte for byte in range(256)}, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = decoders.ByteLevel()
        end = spelled[END]
    else:
        made = corpus.tokenizer
        special = [token.content for _, token in sorted(made.get_added_tokens_decoder().items()) if token.special]
        end = special[0] if special else made.id_to_token(END)
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=made, bos_token=end, eos_token=end, pad_token=end)


def _gpt2(model: GPT2) -> Any:
    code, spec = cast(positions.Learned, model.positions), model.spec
    sizes: dict[str, Any] = {
        "n_layer": spec.layers,
        "n_head": spec.heads,
        "n_embd": spec.width,
        "n_positions": code.table.shape[0],
    }
    made: Any = GPT2LMHeadModel(GPT2Config(**sizes, **_common(model)))
    made.transformer.wpe.weight.copy_(code.table)
    names = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    for ours, theirs in zip(model.blocks, made.transformer.h, strict=True):
        _copy_block(cast(Block, ours), theirs, names)
    _ends(model, made.transformer.wte, made.transformer.ln_f, made.lm_head)
    return made


def _neox(model: GPT2) -> Any:
    code, spec = cast(positions.Rotary, model.positions), model.spec
    config = GPTNeoXConfig(
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        intermediate_size=4 * spec.width,
        hidden_act="gelu_new",
        use_parallel_residual=False,
        max_position_embeddings=model.reading.train_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": code.theta, "partial_rotary_factor": 1.0},
        **_common(model),
    )
    made: Any = GPTNeoXForCausalLM(config)
    names = ("input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense")
    for ours, theirs in zip(model.blocks, made.gpt_neox.layers, strict=True):
        _copy_block(cast(Block, ours), theirs, (*names, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"))
        for copied in theirs.attention.query_key_value.parameters():  # rows: ours q, k, v of all heads, theirs of each
            by_head = copied.view(3, spec.heads, spec.width // spec.heads, -1).transpose(0, 1)
            copied.copy_(by_head.reshape(copied.shape))
    _ends(model, made.gpt_neox.embed_in, made.gpt_neox.final_layer_norm, made.lm_head)
    return made


def _common(model: GPT2) -> dict[str, Any]:
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), END)
    return {"vocab_size": model.reading.vocabulary, "tie_word_embeddings": False, **ends}


def _copy_block(ours: Block, layer: nn.Module, names: Sequence[str]) -> None:
    """Copy norms, attention and MLP to these parts of a layer; transformers' GPT-2 keeps its matrices transposed."""
    attention, mlp = cast(Attention, ours.attention), cast(MLP, ours.mlp)
    parts = (ours.before_attention, ours.before_mlp, attention.qkv, attention.project, mlp.widen, mlp.project)
    for part, place in zip(parts, names, strict=True):
        theirs = layer.get_submodule(place)
        for name, value in cast(nn.Module, part).named_parameters():
            turned = type(theirs).__name__ == "Conv1D" and name == "weight"
            theirs.get_parameter(name).copy_(value.T if turned else value)


def _ends(model: GPT2, embedding: nn.Embedding, norm: nn.LayerNorm, head: nn.Linear) -> None:
    embedding.weight.copy_(model.read_in.weight)
    weight, bias, read_out = without_shift(cast(nn.LayerNorm, model.norm), model.read_out)
    norm.weight.copy_(weight)
    norm.bias.copy_(bias)
    head.weight.copy_(read_out)
