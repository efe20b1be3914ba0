"""Token by token with a cache of keys, a normalizer gives the same as in one pass: n and places come from the mask."""

import inspect

import pytest
import torch
from transformers import DynamicCache, StaticCache

from icl_lab import normalizers
from icl_lab.base.errors import LabError
from icl_lab.transformers import install
from tests.cases import REPRESENTATIVES, few

SERVED = [name for name in normalizers.names() if name != "forget"]  # which weighs keys by tokens that no cache keeps
MORE = ["lssa+reweight:p=3", "ssmax:s=swap", "stick-breaking:remainder=none", "ssa+gated", "elastic:bias=4"]
WITHOUT_CACHE = {"sima", "selective"}  # read queries of earlier tokens
SOME = ["softmax+gated:per=channel", "qassmax", "differential", "ssmax", "lssa+reweight:p=3", "scale-invariant"]
SOME += ["stick-breaking", "cosformer", "ssmax-free"]
# Of a cache each normalizer keeps the contract (testing/rule_masks), every day.
DAILY = [*sorted(REPRESENTATIVES), *sorted(WITHOUT_CACHE), *SOME, *MORE]


def held(model, cache):
    """A cache under the name that a model takes it by: ``cache`` from transformers 5.24 on."""
    takes = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in takes else "past_key_values": cache}


def in_steps(model, given, cache, steps=(5, 3, 1)):
    """Logits of the texts, handed over in pieces."""
    found, start = [], 0
    with torch.no_grad():
        for step in steps:
            end = start + step
            piece = {name: given[name][:, start:end] for name in ("input_ids", "position_ids") if name in given}
            mask = given["attention_mask"][:, :end]
            found.append(model(**piece, attention_mask=mask, **held(model, cache), use_cache=True).logits)
            start = end
    return torch.cat(found, 1)


def whole(model, given):
    with torch.no_grad():
        return model(**given, use_cache=False).logits


def assert_alike(got, wanted, live, what):
    assert (got - wanted)[live].abs().max() <= 1e-5 * wanted[live].abs().max(), what


@pytest.mark.slow
@pytest.mark.parametrize("rules", few(1, [DAILY, [name for name in SERVED if name not in DAILY]]), ids=len)
def test_every_rule_gives_with_a_cache_what_it_gives_without(tiny_model, padded, stirred, rules):
    model, live = tiny_model("llama"), padded["attention_mask"].bool()
    for rule in rules:
        install(model, rule, train_tokens=6)
        stirred(model)
        if rule in WITHOUT_CACHE:
            with pytest.raises(LabError, match="use_cache=False"):
                in_steps(model, padded, DynamicCache(config=model.config))
            continue
        assert_alike(in_steps(model, padded, DynamicCache(config=model.config)), whole(model, padded), live, rule)


@pytest.mark.parametrize("kind", few(2, ["gemma3", "gpt2", "qwen3", "mistral"]))
@pytest.mark.slow
def test_other_models_and_a_cache_of_fixed_size(tiny_model, padded, stirred, kind):
    model, live = tiny_model(kind), padded["attention_mask"].bool()
    for rule in SOME:
        install(model, rule, train_tokens=6)
        stirred(model)
        wanted = whole(model, padded)
        assert_alike(in_steps(model, padded, DynamicCache(config=model.config)), wanted, live, rule)
        static = StaticCache(config=model.config, max_cache_len=16)
        assert_alike(in_steps(model, padded, static), wanted, live, f"{rule}, static cache")


@pytest.mark.parametrize("search", [{"num_beams": 3}, {"num_beams": 1}, {"cache_implementation": "static"}])
@pytest.mark.slow
def test_generated_texts_do_not_hang_on_the_cache(tiny_model, padded, stirred, search):
    model, prompt = tiny_model("llama"), {name: padded[name] for name in ("input_ids", "attention_mask")}
    model.generation_config.disable_compile = True
    for rule in SOME:
        install(model, rule, train_tokens=6)
        stirred(model)
        given = {**prompt, "max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        slow = model.generate(**given, num_beams=search.get("num_beams", 1), use_cache=False)
        assert torch.equal(model.generate(**given, **search), slow), rule


def test_a_rule_without_cache_generates_when_told(tiny_model, ids):
    model = tiny_model("gpt2")
    install(model, "sima")
    assert model.generate(ids, max_new_tokens=3, use_cache=False, eos_token_id=None).shape == (3, 12)
    with pytest.raises(LabError, match="take use_cache=False, or sima:axis=feature"):
        model.generate(ids, max_new_tokens=3)
    install(model, "sima:axis=feature")
    assert model.generate(ids, max_new_tokens=3, eos_token_id=None).shape == (3, 12)
