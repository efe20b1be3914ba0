"""Other libraries that get a model with a normalizer: they run it, or are refused; nobody gets softmax unasked."""

import copy
import json
import pickle
import subprocess
import sys

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, pipeline

from icl_lab.base.errors import LabError
from icl_lab.transformers import install, load, load_adapter, uninstall
from tests.byte_tokens import write_tokenizer


@pytest.fixture
def saved(tiny_model, stirred, tmp_path, monkeypatch):
    """Saves a model with ssmax and a gate whose parameters have moved; returns it and its folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # transformers adds that folder
    model = tiny_model("gpt2", vocab_size=300)
    install(model, "ssmax:s=swap+gated")
    stirred(model)
    model.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model", "hello")
    return model, tmp_path / "model"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_pass_by_another_implementation_is_refused(tiny_model, ids, kind):
    model = tiny_model(kind)
    install(model, "ssa")
    model(ids)
    model.config._attn_implementation = "eager"  # past set_attn_implementation, as other libraries do
    with pytest.raises(LabError, match="did not call its normalizer, the attention implementation is 'eager'"):
        model(ids)
    model.config._attn_implementation = "icl_lab"
    model(ids)


def test_a_pass_with_another_attention_layer_is_refused(tiny_model, ids):
    model, other = tiny_model("llama"), tiny_model("llama")
    install(model, "ssa")
    first, second = (layer.self_attn for layer in model.model.layers)
    model.model.layers[0].self_attn = other.model.layers[0].self_attn
    with pytest.raises(LabError, match=r"normalizers of layers.0.self_attn were not called, .* is LlamaAttention now"):
        model(ids)
    model.model.layers[0].self_attn = first
    for layer in (first, second):  # code of its own inside the layer
        layer.forward = lambda hidden_states, **said: (hidden_states, None)
    with pytest.raises(LabError, match="its own code has attention of another kind"):
        model(ids)


def test_a_layer_that_a_pass_leaves_out_is_no_fault(tiny_model, ids):
    model = tiny_model("llama")
    install(model, "ssa")
    model.model.layers[0].forward = lambda hidden_states, **said: hidden_states
    model(ids)
    model.model.layers[1].forward = lambda hidden_states, **said: hidden_states
    with pytest.raises(LabError, match=r"of layers\.0\.self_attn, layers\.1\.self_attn were not called"):
        model(ids)


@pytest.mark.exhaustive
def test_an_installed_model_goes_through_pickle_and_torch_save(tiny_model, ids, tmp_path):
    model = tiny_model("gpt2")
    install(model, "ssmax:s=swap+gated")
    logits = model(ids).logits
    torch.save(model, tmp_path / "whole.pt")
    for twin in (pickle.loads(pickle.dumps(model)), torch.load(tmp_path / "whole.pt", weights_only=False)):
        assert torch.equal(twin(ids).logits, logits)
        twin.config._attn_implementation = "sdpa"
        with pytest.raises(LabError, match="did not call its normalizer"):
            twin(ids)
        twin.config._attn_implementation = "icl_lab"
        twin.save_pretrained(tmp_path / "twin")
        assert torch.equal(load(AutoModelForCausalLM, tmp_path / "twin")(ids).logits, logits)
        uninstall(twin)
    assert torch.equal(model(ids).logits, logits)
    # As a worker that was spawned reads it: nothing of ours is imported there.
    code = "import sys, torch; m = torch.load(sys.argv[1], weights_only=False); m(torch.ones(1, 4, dtype=int))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "whole.pt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("named", [{}, {"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}])
@pytest.mark.slow
def test_a_folder_is_read_with_its_normalizer_or_not_at_all(saved, ids, named):
    model, folder = saved
    again = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **named)
    assert torch.equal(again(ids).logits, model(ids).logits)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, **named)
    with pytest.raises(AttributeError, match=r"has an attention normalizer, load it with icl_lab\.transformers\.load"):
        type(model).from_pretrained(folder, **named)
    uninstall(again)
    assert again.config._attn_implementation == named.get("attn_implementation", "sdpa")


@pytest.mark.slow
def test_trusted_folders_take_heads_precisions_settings(saved, ids):
    model, folder = saved
    asked = {"trust_remote_code": True}
    labels = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, **asked)
    assert labels(ids[:1]).logits.shape == (1, 3)
    body = AutoModel.from_pretrained(folder, **asked)
    torch.testing.assert_close(body(ids)[0], model.transformer(ids)[0])
    half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **asked)
    assert half.dtype is torch.bfloat16
    assert isinstance(AutoConfig.from_pretrained(folder, **asked), transformers.GPT2Config)
    # As a server makes the model: by the name of its class.
    (named,) = AutoConfig.from_pretrained(folder, **asked).architectures
    served = getattr(transformers, named).from_pretrained(folder, **asked)
    assert torch.equal(served(ids).logits, model(ids).logits)
    assert isinstance(model.config, transformers.GPT2Config)
    assert model.config.model_type == "gpt2"  # only the folder's is another
    again = AutoModelForCausalLM.from_pretrained(folder, **asked)
    again.save_pretrained(folder.with_name("again"))
    third = AutoModelForCausalLM.from_pretrained(folder.with_name("again"), **asked)
    assert torch.equal(third(ids).logits, model(ids).logits)
    told = pipeline("text-generation", str(folder), trust_remote_code=True, device="cpu", max_new_tokens=2)("hello")
    assert told[0]["generated_text"].startswith("hello")


def test_a_folder_is_not_sent_before_it_names_its_normalizer(saved, tmp_path):
    model, _ = saved
    with pytest.raises(LabError, match=r"use model\.push_to_hub\(name\)"):
        model.save_pretrained(tmp_path / "sent", push_to_hub=True)
    assert not (tmp_path / "sent").exists()


def test_plain_models_of_the_kind_stay_plain(saved, tiny_model, ids, tmp_path):
    model, folder = saved
    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    plain = tiny_model("gpt2", vocab_size=300)
    plain.save_pretrained(tmp_path / "plain")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert torch.equal(again(ids).logits, plain(ids).logits)


def test_a_folder_from_before_there_was_remote_code_is_read(saved, ids):
    model, folder = saved
    config = folder / "config.json"
    told = json.loads(config.read_text())
    told["model_type"] = told["icl_lab"].pop("model")
    del told["auto_map"], told["without_its_normalizer"]
    config.write_text(json.dumps(told))
    assert torch.equal(load(AutoModelForCausalLM, folder)(ids).logits, model(ids).logits)


@pytest.fixture
def adapted(tiny_model, tmp_path):
    """Saves an adapter of a model with this normalizer; returns its logits, the plain model and the folder."""
    peft = pytest.importorskip("peft", reason="pip install peft")

    def adapt(ids, attn, learned=0.0, **said):
        model = tiny_model("llama")
        install(model, attn)
        for name, parameter in model.named_parameters():
            parameter.data += learned * (".attention_rule." in name)
        asked = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, **said)
        wrapped = peft.get_peft_model(model, asked).eval()
        for name, parameter in wrapped.named_parameters():
            if "modules_to_save" in name:
                parameter.data += 0.5
        logits = wrapped(ids).logits
        wrapped.save_pretrained(tmp_path / "adapter")
        return logits, tiny_model("llama"), tmp_path / "adapter"

    return adapt


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("said", [{}, {"modules_to_save": ["attention_rule"]}])
@pytest.mark.slow
def test_an_adapter_brings_its_normalizer_along(adapted, ids, said):
    logits, plain, folder = adapted(ids, "ssmax:s=swap", **said)
    whole = copy.deepcopy(plain)
    install(whole, "ssmax:s=swap")
    for model in (plain, whole):
        read = load_adapter(model, folder).eval()
        assert torch.equal(read(ids).logits, logits)
        read.save_pretrained(folder.with_name("again"))
        assert torch.equal(load_adapter(read.unload(), folder.with_name("again")).eval()(ids).logits, logits)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.slow
def test_an_adapter_does_not_come_onto_another_model_unsaid(adapted, ids):
    peft = pytest.importorskip("peft")
    logits, plain, folder = adapted(ids, "ssa")
    with pytest.warns(UserWarning, match=r"Unexpected keyword arguments \['icl_lab'\]"):
        peft.PeftModel.from_pretrained(copy.deepcopy(plain), folder)
    other = copy.deepcopy(plain)
    install(other, "sink")
    with pytest.raises(LabError, match="was trained with 'ssa', and this model has 'sink' installed"):
        load_adapter(other, folder)
    with pytest.raises(LabError, match="is no folder that an adapter was saved in"):
        load_adapter(plain, folder / "nowhere")
    _, plain, folder = adapted(ids, "ssa", learned=0.3)
    with pytest.raises(LabError, match="that had learned, and the adapter does not hold what"):
        load_adapter(plain, folder)
    with pytest.raises(LabError, match="has no attention normalizer installed"):  # it is as it was
        uninstall(plain)
    peft.get_peft_model(plain, peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(folder)
    with pytest.raises(LabError, match="names no attention normalizer; peft reads it"):
        load_adapter(plain, folder)


@pytest.mark.exhaustive
def test_transformer_lens_is_refused_in_place_of_softmax(saved, ids):
    lens = pytest.importorskip("transformer_lens.model_bridge", reason="pip install transformer-lens")
    model, folder = saved[0], saved[1].with_name("plain")
    plain = copy.deepcopy(model)
    uninstall(plain)
    plain.save_pretrained(folder)
    write_tokenizer(folder, "hello")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, bos_token="a", eos_token="a")
    wrapped = lens.TransformerBridge.boot_transformers(str(folder), hf_model=model, tokenizer=tokenizer)
    with pytest.raises(LabError, match="were not called"):
        wrapped(ids)


@pytest.mark.exhaustive
def test_lm_eval_asks_a_trusted_folder_as_load_does(saved, tmp_path):
    lm_eval = pytest.importorskip("lm_eval.models.huggingface", reason="pip install lm_eval")
    model, folder = saved
    ends = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "a")
    transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True, **ends).save_pretrained(folder)
    both = {"batch_size": 2, "device": "cpu"}
    ours = lm_eval.HFLM(pretrained=load(AutoModelForCausalLM, folder), tokenizer=str(folder), **both)
    theirs = lm_eval.HFLM(pretrained=str(folder), trust_remote_code=True, **both)
    pairs = [("abc", "xyz"), ("a", "zyx"), ("qq", "w")]
    asked = [type("Request", (), {"args": pair}) for pair in pairs]
    assert theirs.loglikelihood(asked) == ours.loglikelihood(asked)
    for named in ({}, {"attn_implementation": "sdpa"}):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            lm_eval.HFLM(pretrained=str(folder), device="cpu", **named)
