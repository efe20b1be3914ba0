"""Models trained here on text as models of transformers: the same logits, normalizer, tokenizer; or a refusal."""

import json
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.cli.main import cli
from icl_lab.extras.language import convert
from icl_lab.extras.language.model import read
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.tasks.texts.corpus import corpus
from icl_lab.transformers import load
from tests.byte_tokens import write_tokenizer

TOKENS = TokenSpec(width=1, outputs=256, roles=1, train_tokens=48, vocabulary=256)


def moved(attn="softmax", reading=TOKENS, by=0.2, **spec):
    """Build a model all of whose parameters have moved: norms from 1, shifts from 0, normalizers from their start."""
    made = GPT2(ModelSpec(layers=3, heads=4, width=32, **spec), reading, attn, stream(0, "init"))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=stream(1, "moved")))
    return made.eval()


@pytest.mark.parametrize("code", ["learned", "learned:rows=64", "rotary", "rotary:theta=500"])
@pytest.mark.parametrize("attn", ["softmax", "ssa", "ssa:per=layer", "ssmax", "lssa+reweight:p=3", "softmax+gated"])
@pytest.mark.slow
def test_logits_equal_those_of_the_model(tmp_path, code, attn):
    ours = moved(attn, positions=code)
    convert.save(ours, corpus(""), tmp_path / "saved")
    theirs = load(AutoModelForCausalLM, tmp_path / "saved").eval()
    tokens = torch.randint(0, 256, (2, 60), generator=stream(0, "tokens"))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=0, atol=2e-5)
        kept = theirs.generate(tokens[:1, :8], max_new_tokens=6, do_sample=False)
        again = theirs.generate(tokens[:1, :8], max_new_tokens=6, do_sample=False, use_cache=False)
    assert kept.tolist() == again.tolist()


def test_shift_of_the_read_out_by_hand():
    """Of width 2 a normalised x is (1, -1) or (-1, 1): both logits can be written down."""
    norm, read_out = torch.nn.LayerNorm(2), torch.nn.Linear(2, 1)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, 3.0]))
        norm.bias.copy_(torch.tensor([0.5, -1.0]))
        read_out.weight.copy_(torch.tensor([[1.0, 4.0]]))
        read_out.bias.copy_(torch.tensor([7.0]))
        weight, bias, without = convert.without_shift(norm, read_out)
    for sign in (1, -1):
        x = sign * torch.tensor([1.0, -1.0])
        logit = 1 * (2 * sign + 0.5) + 4 * (-3 * sign - 1) + 7
        assert (without @ (weight * x + bias)).item() == pytest.approx(logit)


def test_words_of_the_grammar_are_refused():
    with pytest.raises(BadValue, match=r"^the words of the grammar are no tokenizer of transformers"):
        convert.tokenizer(corpus("grammar"))


def test_tokens_of_bytes_are_the_bytes_of_every_text():
    made = convert.tokenizer(corpus(""))
    text = "A line.\n\tSigma is σ, twice  blank, 'quoted', 12.5\r\n"
    assert made(text)["input_ids"] == list(text.encode())
    assert made.decode(list(text.encode())) == text


def test_a_tokenizer_of_a_file_is_saved_with_its_model(tmp_path, monkeypatch):
    write_tokenizer(tmp_path, "the dog and the cat " * 20)
    text = (tmp_path / "book.txt").absolute()
    text.write_text("the dog and the cat sat there. " * 400)
    words = corpus(str(text), str(tmp_path / "tokenizer.json"))
    size = words.vocabulary
    ours = moved(reading=TokenSpec(1, size, 1, 48, size))
    convert.save(ours, words, tmp_path / "saved")
    ids = words.tokenizer.encode("the dog sat").ids
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")
    for trust, questions in (({"trust_remote_code": False}, 0), ({}, 1)):  # as the card of the folder says
        read = AutoTokenizer.from_pretrained(tmp_path / "saved", **trust)
        assert (read("the dog sat")["input_ids"], len(asked)) == (ids, questions)
    assert "AutoTokenizer.from_pretrained" in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        *(
            ({field: value}, f"^model.{field}={value} has no counterpart")
            for field, value in (
                *(("block", "llama"), ("final_norm", "none"), ("qk_norm", True), ("norm_in", True), ("mlp", False)),
                *(("positions", code) for code in ("none", "rotary:ntk=yes", "learned:random=100")),
            )
        ),
        ({"reading": TokenSpec(width=1, outputs=1, roles=2, train_tokens=48)}, "only models of the task text"),
        ({"attn": "forget"}, "'forget' weighs keys by the tokens themselves"),
    ],
)
def test_a_model_without_counterpart_is_refused(tmp_path, spec, said):
    with pytest.raises(BadValue, match=said):
        convert.save(moved(**spec), corpus(""), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_the_start_of_the_read_in_is_no_field_of_the_saved_model(tmp_path):
    convert.save(moved(read_in_start=4.0), corpus(""), tmp_path / "saved")
    assert (tmp_path / "saved").exists()


@pytest.mark.exhaustive
def test_a_run_is_exported_and_read_by_other_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--set", "train.steps=5", "--set", "test.prompts=4"]
    for task in ("text", "linear"):
        cli.main(["sweep", "--task", task, "--attn", "ssa", "--preset", "smoke", *few], standalone_mode=False)
    cli.main(["export-hf", "text/ssa/smoke", "--to", "mine"], standalone_mode=False)
    assert "next: icl-lab lm mine --attn ssa" in capsys.readouterr().out
    assert "library_name: transformers" in (tmp_path / "mine" / "README.md").read_text()
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["icl_lab"]["attn"] == "ssa"
    found = read("mine", torch.device("cpu"))
    assert (found.attn, found.words, found.trained) == ("ssa", 256, 128)
    says = pipeline("text-generation", model=found.model, tokenizer=AutoTokenizer.from_pretrained("mine"))
    assert says("The ", max_new_tokens=5, do_sample=False)[0]["generated_text"].startswith("The ")
    with pytest.raises(BadValue, match="mine is not empty: name a new folder"):
        cli.main(["export-hf", "text/ssa/smoke", "--to", "mine"], standalone_mode=False)
    said = r"linear has no text, whose models would be language models; tasks that have: masked-text, text\."
    with pytest.raises(BadValue, match=said):
        cli.main(["export-hf", "linear/ssa/smoke", "--to", "other"], standalone_mode=False)


def test_without_transformers_one_line_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "icl_lab.extras.language.convert")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BadValue, match=r"pip install 'icl_lab\[hf\]'"):
        cli.main(["export-hf", "text/ssa/smoke", "--to", "mine"], standalone_mode=False)
