"""Where normalizers are put, what is refused, and that a model is what it was once they are taken out."""

import copy
import math
import sys

import pytest
import torch

from icl_lab.base.errors import LabError
from icl_lab.normalizers.ssmax import swap_start
from icl_lab.transformers import install, load, uninstall


def rules(model):
    return {
        name.removesuffix(".attention_rule"): type(module).__name__
        for name, module in model.named_modules()
        if name.endswith(".attention_rule")
    }


def test_every_layer_gets_a_rule_of_its_own(tiny_model):
    model = tiny_model("gpt2")
    names = install(model, "ssa")
    assert names == ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert rules(model) == dict.fromkeys(names, "SSA")
    first, second = (model.get_submodule(name).attention_rule for name in names)
    assert first.raw_n is not second.raw_n
    assert first.raw_n.shape == (4,)
    learned = {name for name, _ in model.named_parameters() if "attention_rule" in name}
    assert learned == {f"{name}.attention_rule.{number}" for name in names for number in ("raw_n", "raw_b")}


def test_layers_may_be_chosen_and_the_others_run_softmax(tiny_model, ids):
    model = tiny_model("gemma3")
    model.set_attn_implementation("eager")
    plain = model(ids).logits
    seen = []
    names = install(model, "ssa", only=lambda name, layer: seen.append(name) or not layer.is_sliding)
    assert seen == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert names == seen[1:]
    assert rules(model) == dict(zip(seen, ("Softmax", "SSA"), strict=True))
    changed = model(ids).logits
    install(model, "softmax", only=lambda name, layer: layer.is_sliding)
    torch.testing.assert_close(model(ids).logits, plain, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(changed, plain, atol=1e-2)


def test_a_second_rule_takes_the_place_of_the_first(tiny_model, ids):
    model, other = tiny_model("llama"), tiny_model("llama")
    install(model, "ssa")
    install(model, "sink")
    install(other, "sink")
    assert set(rules(model).values()) == {"Sink"}
    assert torch.equal(model(ids).logits, other(ids).logits)
    assert model.config.icl_lab == other.config.icl_lab


def test_a_choice_that_cannot_be_leaves_the_first_in_place(tiny_model, ids):
    model = tiny_model("llama")
    install(model, "ssa")
    before = model(ids).logits
    for wrong, says in {
        "no-such-rule": "No normalizer is called 'no-such-rule'",
        "cosformer:horizon=current": "'cosformer:horizon=current' reads the length of the whole text",
        "forget": "'forget' weighs keys by the tokens themselves",
        "forget+gated": "weighs keys by the tokens themselves",
    }.items():
        with pytest.raises(LabError, match=says) as refused:
            install(model, wrong)
        assert "\n" not in str(refused.value)
    with pytest.raises(LabError, match="Linear is no model of transformers"):
        install(torch.nn.Linear(2, 2), "ssa")
    with pytest.raises(LabError, match="leaves out every attention layer"):
        install(model, "sink", only=lambda name, layer: False)
    assert torch.equal(model(ids).logits, before)


def test_a_normalizer_knows_the_number_of_its_layer(tiny_model):
    model = tiny_model("llama")
    install(model, "differential", only=lambda name, layer: layer.layer_idx == 1)
    assert model.model.layers[1].self_attn.attention_rule.start == pytest.approx(0.8 - 0.6 * math.exp(-0.3))


@pytest.mark.parametrize(("kind", "projection"), [("gpt2", "c_proj"), ("qwen3", "o_proj"), ("bert", None)])
@torch.no_grad()
def test_a_gate_reads_what_the_projections_read(tiny_model, ids, stirred, kind, projection):
    """By hand in the first layer: what softmax hands on, times the gates of the tokens that the layer was given."""
    model, read, sums = tiny_model(kind), [], []
    names = install(model, "softmax")
    layer = model.get_submodule(names[0])
    take = lambda _, given, said: read.append(said.get("hidden_states", given[0] if given else None))  # noqa: E731
    layer.register_forward_pre_hook(take, with_kwargs=True)
    if projection is None:  # the module of BERT that attends ends before its projection
        layer.register_forward_hook(lambda _, given, output: sums.append(output[0]))
    else:
        layer.get_submodule(projection).register_forward_pre_hook(lambda _, given: sums.append(given[0]))
    model(ids)
    install(model, "softmax+gated:per=channel")
    stirred(model)
    model(ids)
    gates = (read[0] @ layer.attention_rule.w.T).sigmoid()
    torch.testing.assert_close(read[-1], read[0])
    torch.testing.assert_close(sums[-1], sums[0] * gates)
    assert not torch.allclose(sums[-1], sums[0], rtol=0.1)


def test_a_removed_gate_leaves_nothing_behind(tiny_model, ids):
    model = tiny_model("llama")
    hooks = lambda: sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())  # noqa: E731
    before, attributes = hooks(), [set(vars(module)) for module in model.modules()]
    install(model, "softmax+gated")
    model(ids)
    assert not any("attention_rule_tokens" in vars(module) for module in model.modules())
    install(model, "ssa+gated")  # the hooks of the first go with it
    # Two a layer for its tokens, one a layer and three of the model for the check that normalizers are called.
    assert hooks() == before + 3 * len(model.model.layers) + 3
    logits, twin = model(ids).logits, copy.deepcopy(model)
    assert torch.equal(twin(ids).logits, logits)
    uninstall(twin)
    assert torch.equal(model(ids).logits, logits)
    uninstall(model)
    assert hooks() == before
    assert [set(vars(module)) for module in model.modules()] == attributes


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["gpt2", "gemma3", "bert"])
def test_uninstalled_a_model_is_what_it_was(tiny_model, ids, kind, implementation):
    model = tiny_model(kind).train()
    model.base_model.eval()  # a mixture of modes, which the probing pass has to keep
    model.set_attn_implementation(implementation)
    config, modes = model.config.to_dict(), [module.training for module in model.modules()]
    plain, keys = model(ids).logits, list(model.state_dict())
    install(model, "ssa")
    assert not torch.allclose(model(ids).logits, plain, atol=1e-2)
    uninstall(model)
    assert torch.equal(model(ids).logits, plain)
    assert list(model.state_dict()) == keys
    assert model.config.to_dict() == config
    assert model.config._attn_implementation == implementation
    assert [module.training for module in model.modules()] == modes
    assert not {"save_pretrained", "set_attn_implementation"} & set(vars(model))
    with pytest.raises(LabError, match="no attention normalizer installed"):
        uninstall(model)


SMALL = {"num_key_value_heads": 2, "head_dim": 8}
SEQUENCES = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4}
SEQUENCES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
REFUSALS = {
    "softcap": ("Gemma2", "Gemma2ForCausalLM", SMALL, "Gemma2Attention passes softcap, which no normalizer knows"),
    "s_aux": ("GptOss", "GptOssForCausalLM", {**SMALL, "num_local_experts": 4}, "passes s_aux"),
    "position_bias": ("T5", "T5EncoderModel", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}, "position_bias"),
    "BLOOM": ("Bloom", "BloomForCausalLM", {"n_head": 4}, "BloomForCausalLM does not ask the attention interface"),
    "MPT": ("Mpt", "MptForCausalLM", {"d_model": 32, "n_heads": 4}, "MptForCausalLM does not ask"),
    "encoder and decoder": ("Bart", "BartForConditionalGeneration", SEQUENCES, "Generation has cross-attention"),
    "cross-attention": ("GPT2", "GPT2LMHeadModel", {"add_cross_attention": True}, "has cross-attention"),
    "pictures": ("ViT", "ViTModel", {"image_size": 16, "patch_size": 8}, "cannot be tried on 5 token ids"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_served_is_refused_by_name(tiny_model, case):
    family, kind, settings, says = REFUSALS[case]
    model = tiny_model(family, kind, **settings)
    before, config = model.config._attn_implementation, model.config.to_dict()
    with pytest.raises(LabError, match=says) as refused:
        install(model, "ssa")
    assert "\n" not in str(refused.value)
    assert model.config._attn_implementation == before
    assert model.config.to_dict() == config
    assert rules(model) == {}


def test_a_model_of_several_models_is_refused_with_their_names():
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    text, vision = CLIPTextConfig(vocab_size=40, **size), CLIPVisionConfig(image_size=16, patch_size=8, **size)
    with pytest.raises(LabError, match=r"CLIPModel is made of several models .*CLIPTextModel"):
        install(CLIPModel(CLIPConfig(text_config=text, vision_config=vision)), "ssa")


def test_attention_that_does_more_than_softmax_is_refused(tiny_model, monkeypatch):
    from transformers.models.gpt2 import modeling_gpt2

    def doubled(*given, usual=modeling_gpt2.eager_attention_forward, **said):
        o, w = usual(*given, **said)
        return 2 * o, w

    monkeypatch.setattr(modeling_gpt2, "eager_attention_forward", doubled)
    model = tiny_model("gpt2")
    model.set_attn_implementation("eager")
    with pytest.raises(LabError, match="GPT2LMHeadModel does more in its attention than softmax"):
        install(model, "ssa")


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (torch.rand(3, 1, 9, 9), "adds to the scores"),
        (torch.ones(3, 1, 9, 9, dtype=torch.long), "must be bool"),
        (torch.ones(3, 4, 9, 9, dtype=torch.bool), r"shape \(3, 4, 9, 9\)"),
        (torch.ones(3, 1, 9, 12, dtype=torch.bool), r"not \(prompts, 1, 9, 9\)"),
    ],
)
def test_masks_that_say_more_than_what_is_visible_are_refused(tiny_model, ids, mask, says):
    model = tiny_model("gpt2")
    install(model, "ssa")
    with pytest.raises(LabError, match=says):
        model(ids, attention_mask=mask)


def test_the_training_length_is_of_positions_or_given(tiny_model):
    model = tiny_model("gpt2")
    install(model, "ssmax:s=swap")
    assert model.transformer.h[0].attn.attention_rule.s[0].item() == pytest.approx(swap_start(64))
    install(model, "ssmax:s=swap", train_tokens=1024)
    assert model.transformer.h[0].attn.attention_rule.s[0].item() == pytest.approx(swap_start(1024))
    assert model.config.icl_lab["train_tokens"] == 1024
    with pytest.raises(LabError, match="train_tokens must be >= 1, got 0"):
        install(model, "ssmax:s=swap", train_tokens=0)
    vars(model.config)["n_positions"] = 0
    with pytest.raises(LabError, match="GPT2LMHeadModel does not say how long its texts are; give train_tokens"):
        install(model, "ssmax:s=swap")


def test_another_implementation_cannot_be_set_past_the_rule(tiny_model, ids):
    model = tiny_model("gpt2")
    install(model, "ssa")
    with pytest.raises(LabError, match="uninstall takes it out first"):
        model.set_attn_implementation("sdpa")


def test_a_copy_of_a_model_has_rules_of_its_own(tiny_model, ids, tmp_path):
    model = tiny_model("gpt2")
    install(model, "ssmax")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.transformer.h[0].attn.attention_rule.s.fill_(3.0)
    twin.save_pretrained(tmp_path)
    kept = load(type(model), tmp_path).transformer.h[0].attn.attention_rule.s
    assert kept.tolist() == [3.0] * 4
    assert model.transformer.h[0].attn.attention_rule.s.tolist() == [1.0] * 4


def test_a_layer_without_rule_says_how_models_are_loaded(tiny_model, ids):
    model = tiny_model("gpt2")
    model.set_attn_implementation("icl_lab")
    with pytest.raises(LabError, match=r"GPT2Attention has no normalizer: .*icl_lab\.transformers\.load"):
        model(ids)


def test_without_transformers_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("icl_lab.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LabError, match=r"pip install 'icl_lab\[hf\]'"):
        import icl_lab.transformers  # noqa: F401
