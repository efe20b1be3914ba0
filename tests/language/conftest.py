"""Tiny models with random weights and a tokenizer of their own: nothing is fetched."""

import pytest
import torch

from tests.byte_tokens import write_tokenizer

pytest.importorskip("transformers", reason="transformers is not installed")

TEXT = "The quick brown fox jumps over the lazy dog. It does not come back before night falls, 1234567890 times.\n"


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders with a Llama (rotary positions), and a GPT-2 (a table of 96 positions)."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 288, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    llama = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=288, n_embd=32, n_layer=2, n_head=4, n_positions=96))
    found = {}
    for name, model in (("llama", llama), ("gpt2", gpt2)):
        found[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(found[name])
        write_tokenizer(found[name], TEXT)
    return found


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT * 200)
    return str(path)
