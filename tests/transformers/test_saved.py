"""A saved model comes back with its normalizer, number by number, and by no other way than ``load``."""

import json

import pytest
import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

import icl_lab
from icl_lab import normalizers
from icl_lab.base.errors import BadValue, LabError
from icl_lab.transformers import install, load, uninstall
from tests.cases import REPRESENTATIVES, few

SERVED = [name for name in normalizers.names() if name != "forget"]
MORE = ["lssa+reweight:p=3", "ssmax:s=swap,bias=yes", "ssmax-free+reweight", "ssa:per=layer", "ssa+gated", "qassmax"]
DAILY, RULES = [*sorted(REPRESENTATIVES), *MORE], [*SERVED, *MORE]


@pytest.mark.parametrize(("kind", "rules"), few(1, [("gpt2", DAILY), ("llama", RULES)]))
@pytest.mark.slow
def test_every_rule_comes_back_exactly(tiny_model, ids, stirred, tmp_path, kind, rules):
    model = tiny_model(kind)
    for number, rule in enumerate(rules):
        install(model, rule, train_tokens=6)
        stirred(model, number)
        model.save_pretrained(tmp_path)
        again = load(AutoModelForCausalLM, tmp_path)
        # Numbers are equal; sums of them may differ in rounding, by where in memory they came to lie.
        torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-5, msg=rule)
        assert again.config.icl_lab == model.config.icl_lab
        ours, theirs = model.state_dict(), again.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), rule
        assert not any(module.training for module in again.modules())


def test_a_parameter_of_all_layers_is_one_again(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    install(model, "ssmax-free", train_tokens=6)
    model.save_pretrained(tmp_path)
    first, second = (block.attn.attention_rule for block in load(AutoModelForCausalLM, tmp_path).transformer.h)
    assert first.p is second.p
    assert first.s is not second.s


def test_numbers_keep_their_precision_in_a_model_of_half(tiny_model, ids, stirred, tmp_path):
    tiny_model("llama").to(torch.bfloat16).save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    install(model, "ssa")
    stirred(model)
    model.save_pretrained(tmp_path)
    again = load(AutoModelForCausalLM, tmp_path, dtype=torch.bfloat16)
    rule = again.model.layers[0].self_attn.attention_rule
    assert rule.raw_n.dtype is torch.float32
    assert torch.equal(rule.raw_n, model.model.layers[0].self_attn.attention_rule.raw_n)
    assert again.model.layers[0].self_attn.q_proj.weight.dtype is torch.bfloat16
    torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=0.02, rtol=0.02)


def test_files_in_pieces_and_chosen_layers(tiny_model, ids, stirred, tmp_path):
    model = tiny_model("gemma3")
    install(model, "sink", only=lambda name, layer: layer.is_sliding)
    stirred(model)
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    again = load(AutoModelForCausalLM, tmp_path)
    torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-5)
    assert type(again.model.layers[1].self_attn.attention_rule).__name__ == "Softmax"


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
@pytest.mark.parametrize("auto", [AutoModelForSequenceClassification, AutoModelForQuestionAnswering, AutoModel])
def test_other_heads_start_anew_on_the_same_body(tiny_model, ids, stirred, tmp_path, kind, auto, caplog, monkeypatch):
    model = tiny_model(kind)
    install(model, "ssa")
    stirred(model)
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(transformers.utils.logging.get_logger("transformers"), "propagate", True)
    transformers.utils.logging.set_verbosity_warning()
    more = {"num_labels": 3} if auto is AutoModelForSequenceClassification else {}
    again = load(auto, tmp_path, **more)
    given = {"input_ids": ids[:1], "attention_mask": torch.ones_like(ids[:1])}
    torch.testing.assert_close(again.base_model(**given)[0], model.base_model(**given)[0], atol=1e-5, rtol=1e-5)
    if more:
        assert again(**given).logits.shape == (1, 3)
    elif auto is AutoModelForQuestionAnswering:
        assert again(**given).end_logits.shape == (1, 9)
    assert ("start anew" in caplog.text) is (auto is not AutoModel or kind == "bert")
    assert "attention_rule" not in caplog.text
    # Saved from there and read again, it has lost nothing.
    again.save_pretrained(tmp_path / "second")
    third = load(auto, tmp_path / "second")
    assert all(torch.equal(third.state_dict()[name], tensor) for name, tensor in again.state_dict().items())
    torch.testing.assert_close(third(**given)[0], again(**given)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("auto", [AutoModelForCausalLM, AutoModel, AutoModelForSequenceClassification])
def test_without_trust_no_head_reads_a_folder(tiny_model, tmp_path, auto):
    model = tiny_model("gpt2")
    install(model, "softmax")  # even where softmax itself is the normalizer
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="trust_remote_code=True") as refused:
        auto.from_pretrained(tmp_path, trust_remote_code=False)
    assert str(tmp_path) in str(refused.value)  # and there the way is named
    assert "Without trust:\n\n```python" in (tmp_path / "README.md").read_text()
    assert "icl_lab.transformers.load reads it without" in (tmp_path / "modeling_icl_lab.py").read_text()


def test_uninstalled_it_is_saved_as_any_model(tiny_model, ids, tmp_path):
    model = tiny_model("gpt2")
    install(model, "ssa")
    model.save_pretrained(tmp_path / "with")
    again = load(AutoModelForCausalLM, tmp_path / "with")
    uninstall(again)
    uninstall(model)
    assert again.config._attn_implementation == "sdpa"
    again.save_pretrained(tmp_path / "without")
    assert "icl_lab" not in (tmp_path / "without" / "config.json").read_text()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "without")
    torch.testing.assert_close(plain(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-5)
    with pytest.raises(LabError, match="holds no attention normalizer; from_pretrained of transformers reads it"):
        load(AutoModelForCausalLM, tmp_path / "without")


def test_the_card_says_it_once_and_keeps_what_else_is_there(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    install(model, "ssa", only=lambda name, layer: layer.layer_idx == 1)
    model.save_pretrained(tmp_path)
    card = tmp_path / "README.md"
    for words in ("`ssa` in 1 of\n2 layers", "model = load(GPT2LMHeadModel", icl_lab.__version__):
        assert words in card.read_text()
    card.write_text(card.read_text().replace("library_name", "license: mit\nlibrary_name") + "\nMine.\n")
    install(model, "sink")
    model.save_pretrained(tmp_path)
    assert "`ssa`" not in card.read_text()
    for words in ("## Attention normalizer", "`sink` in 2 of", "license: mit", "Mine."):
        assert card.read_text().count(words) == 1


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A saved model, whose parts tests damage."""
    model = tiny_model("gpt2")
    install(model, "ssmax")
    model.save_pretrained(tmp_path)
    return tmp_path


def layers(told, which="", **said):
    """A description with other words in its layers, or in one of them."""
    return told | {"layers": {name: each | (said if which in name else {}) for name, each in told["layers"].items()}}


EDITED, NO_WORD = r"config\.json (is damaged or )?(edited|names the normalizer)", "its model_type is no word"
SEVENTH = {"h.7.attn": {"attn": "softmax", "heads": 4, "head_dim": 8}}
EDITS = {
    "another label": (lambda told: told | {"attn": "softmax"}, EDITED),
    "other layers": (lambda told: layers(told, attn="softmax"), EDITED),
    "one other layer": (lambda told: layers(told, "h.0", attn="sink"), EDITED),
    "one more layer": (
        lambda told: told | {"layers": told["layers"] | SEVENTH},
        r"GPT2LMHead.* has no layer h\.7\.attn",
    ),
    "attn a number": (lambda told: told | {"attn": 3}, EDITED),
    "no tokens": (lambda told: told | {"train_tokens": -1}, EDITED),
    "tokens in words": (lambda told: told | {"train_tokens": "many"}, EDITED),
    "no layers": (lambda told: told | {"layers": {}}, EDITED),
    "layers in a row": (lambda told: told | {"layers": list(told["layers"])}, EDITED),
    "heads without end": (lambda told: layers(told, heads=10**12), EDITED),
    "half heads": (lambda told: layers(told, head_dim=0.5), EDITED),
    "no version": (lambda told: {name: value for name, value in told.items() if name != "version"}, EDITED),
    "a number as model": (lambda told: told | {"model": 3}, NO_WORD),
    "nothing as model": (lambda told: told | {"model": None}, NO_WORD),
    "a list as model": (lambda told: told | {"model": ["gpt2"]}, NO_WORD),
}


def test_an_edited_description_is_one_line(folder):
    config = json.loads((folder / "config.json").read_text())
    for name, (edit, says) in EDITS.items():
        (folder / "config.json").write_text(json.dumps(config | {"icl_lab": edit(config["icl_lab"])}))
        with pytest.raises(LabError, match=says) as refused:
            load(AutoModelForCausalLM, folder)
        assert "\n" not in str(refused.value), name
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(config).encode())  # a byte order mark is no part
    assert load(AutoModelForCausalLM, folder).config.icl_lab["attn"] == "ssmax"


@pytest.mark.parametrize("data", [b"[]", b"null", b"3", b"", b"{", b"\xff", b"[" * 200_000, b'{"a": ' + b"[" * 200_000])
def test_a_config_that_is_none_is_one_line(tmp_path, data):
    (tmp_path / "config.json").write_bytes(data)
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadValue, match="is no folder that a model was saved in") as refused:
            load(AutoModelForCausalLM, place)
        assert "\n" not in str(refused.value)


def test_weights_that_lack_a_number_are_one_line(folder):
    from safetensors.torch import load_file, save_file

    file, key = folder / "model.safetensors", "transformer.h.1.attn.attention_rule.s"
    whole = load_file(file)
    without = {name: tensor for name, tensor in whole.items() if name != key}
    lacks = r"does not hold the normalizer's h\.1\.attn\.attention_rule\.s once"
    for numbers, says in ((without, lacks), ({**whole, key: torch.ones(3)}, "once and whole")):
        save_file(numbers, file, metadata={"format": "pt"})
        with pytest.raises(LabError, match=says):
            load(AutoModelForCausalLM, folder)
    file.write_bytes(b"nothing of safetensors")
    with pytest.raises(BadValue, match=r"model\.safetensors cannot be read"):
        load(AutoModelForCausalLM, folder)
