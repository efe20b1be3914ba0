"""Tiny models with random weights, built from configurations: nothing is downloaded."""

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")

VOCABULARY = 40
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZE |= {"intermediate_size": 48, "max_position_embeddings": 64}
FEW = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {"num_key_value_heads": 2}
WINDOWS = {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 3}
WINDOWS |= {"layer_types": ["sliding_attention", "full_attention"]}
KINDS = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", {**SIZE, **FEW}),
    "llama": ("Llama", "LlamaForCausalLM", {**SIZE, **FEW, **GROUPED}),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", {**SIZE, **FEW, **GROUPED, "head_dim": 16}),
    "olmo2": ("Olmo2", "Olmo2ForCausalLM", {**SIZE, **FEW, **GROUPED}),
    "mistral": ("Mistral", "MistralForCausalLM", {**SIZE, **FEW, **GROUPED, "sliding_window": 4}),
    "granite": ("Granite", "GraniteForCausalLM", {**SIZE, **FEW, **GROUPED, "attention_multiplier": 0.8}),
    "gemma3": ("Gemma3Text", "Gemma3ForCausalLM", {**SIZE, **FEW, **GROUPED, **WINDOWS}),
    "bert": ("Bert", "BertForMaskedLM", {**SIZE, **FEW}),
    "roberta": ("Roberta", "RobertaForMaskedLM", {**SIZE, **FEW}),
}


@pytest.fixture(autouse=True)
def quiet():
    """What transformers says about tiny configurations would fill the screen."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(before)


@pytest.fixture
def tiny_model():
    """Build a model by its kind; the same weights each time, large enough for attention that is not nearly uniform."""
    import transformers

    def build(kind, class_name=None, **settings):
        family, usual, given = KINDS.get(kind, (kind, None, {**SIZE, **FEW}))
        config = getattr(transformers, f"{family}Config")(**(given | settings))
        torch.manual_seed(0)
        model = getattr(transformers, class_name or usual)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 2 and "embed" not in name and "wte" not in name:
                    parameter.mul_(10)
        return model

    return build


@pytest.fixture
def ids():
    """Token ids of three texts of nine tokens, without special ones."""
    return torch.randint(3, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def stirred():
    """Move every learned number of the normalizers in a model away from its start."""

    def perturb(model, seed=0):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".attention_rule." in name:
                    parameter.add_(0.3 * torch.rand(parameter.shape, generator=generator) + 0.02)

    return perturb


@pytest.fixture
def padded(ids):
    """Keywords for the same texts, the second one with three tokens of padding before it."""
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
