"""Losses and needles of language models, against arithmetic by hand and the model's own."""

import json
import math
import shutil
import sys

import pytest
import torch

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.extras.language import needle
from icl_lab.extras.language.loss import losses
from icl_lab.extras.language.model import read
from icl_lab.tasks.texts.corpus import corpus_in

CPU = torch.device("cpu")


@pytest.fixture
def llama(folders):
    return read(str(folders["llama"]), CPU)


def test_the_loss_is_the_model_s_own(llama, book):
    """``labels`` make transformers compute the mean over all tokens but the first."""
    windows = corpus_in(llama.tokenizer, book).windows("held-out", stream(0, "w"), 5, 40)
    nats = losses(llama, windows)
    assert nats.shape == (5, 40)
    own = llama.model(input_ids=windows, labels=windows).loss.item()
    assert nats.mean().item() == pytest.approx(own, rel=1e-5)
    logits = llama.model(input_ids=windows[:1]).logits[0, 6].log_softmax(-1)
    assert nats[0, 6].item() == pytest.approx(-logits[windows[0, 7]].item(), rel=1e-4)


def test_pieces_do_not_change_it(llama, book, monkeypatch):
    windows = corpus_in(llama.tokenizer, book).windows("held-out", stream(0, "w"), 5, 40)
    whole = losses(llama, windows)
    monkeypatch.setattr("icl_lab.extras.language.loss.MEMORY", 1)
    torch.testing.assert_close(losses(llama, windows), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_answer_that_is_no_number_is_an_infinite_loss(llama, book):
    with torch.no_grad():
        llama.model.get_output_embeddings().weight[7] = math.nan
    windows = corpus_in(llama.tokenizer, book).windows("held-out", stream(0, "w"), 2, 10)
    assert losses(llama, windows).isinf().all()


@pytest.mark.parametrize("depth", [0, 37, 100])
def test_the_number_is_hidden_at_its_depth_and_asked_for(llama, book, depth):
    corpus = corpus_in(llama.tokenizer, book)
    hide = needle.hidden(llama, corpus, 150, depth, 3)
    assert len(hide.tokens) == 150
    assert llama.tokenizer.decode(hide.tokens[hide.digits.start : hide.digits.stop]).strip() == hide.number
    text = llama.tokenizer.decode(hide.tokens)
    sentence = text[text.index("\nThe special magic") :].partition(" is:")[0]
    assert text.endswith(f"{sentence} is:")
    assert text.count(f"{sentence} is: {hide.number}.\n") == 1
    before = text.index(sentence)
    share = before / (len(text) - 2 * len(f"{sentence} is: {hide.number}.\n"))
    assert share == pytest.approx(depth / 100, abs=0.12)
    other = needle.hidden(llama, corpus, 150, 50, 3)
    assert (hide.number, sentence in llama.tokenizer.decode(other.tokens)) == (other.number, True)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        *((said, True) for said in (" 1234567.", "1234567 and 7654321", ": 1234567")),
        *((said, False) for said in ("12345678", " 123456", "7654321, not 1234567", "none")),
    ],
)
def test_all_digits_of_the_first_number_count(said, found):
    assert needle.right(said, "1234567") is found


def test_head_scores_are_the_weights_on_the_digits(llama, book):
    corpus = corpus_in(llama.tokenizer, book)
    hide = needle.hidden(llama, corpus, 150, 50, 0)
    with llama.ruled("softmax", 64):
        scores = needle.head_scores(llama, hide)
        whole = llama.model(input_ids=torch.tensor([hide.tokens]), output_attentions=True).attentions
    for layer, weights in zip(scores, whole, strict=True):
        own = weights[0, :, -1, hide.digits.start : hide.digits.stop].sum(-1)
        assert layer == pytest.approx(own.tolist(), abs=1e-6)


def test_a_context_without_room_is_refused(llama, book):
    corpus = corpus_in(llama.tokenizer, book)
    with pytest.raises(BadValue, match="a context has at least"):
        needle.hidden(llama, corpus, 20, 50, 0)


@pytest.mark.slow
def test_the_command_writes_numbers_pictures_and_a_table(folders, book, run, tmp_path):
    words = ["lm", str(folders["llama"]), "--attn", "softmax,ssmax:s=swap,ssa:n=2,b=1", "--attn", "log-n"]
    words += ["--length", "100", "--windows", "4", "--needle", "--contexts", "90,120", "--depths", "10,90"]
    words += ["--text", book, "--samples", "2", "--results", str(tmp_path / "r")]
    out, err = run.ok(*words)
    (folder,) = (tmp_path / "r").glob("lm-*")
    assert {path.name for path in folder.iterdir()} >= {
        *("loss.csv", "ends.csv", "needle.csv", "heads.csv", "table.md", "study.json"),
        *("loss.png", "loss.svg", "needle.png", "needle.svg"),
    }
    rules = ("softmax", "ssmax:s=swap", "ssa:n=2,b=1", "log-n", "reference:5-gram")
    assert all(f"`{rule}`" in out for rule in rules)
    assert "log-n` | " in (folder / "table.md").read_text()
    ends = [line.split(",") for line in (folder / "ends.csv").read_text().splitlines()[1:]]
    values = {(row[1], row[-4]): float(row[-3]) for row in ends}
    assert math.isfinite(min(values.values()))
    run.ok(*words)
    assert json.loads((folder / "study.json").read_text())["options"]["near"] == 64


def test_a_saved_model_is_asked_with_the_rule_it_was_saved_with(folders, book, tmp_path):
    from transformers import AutoModelForCausalLM

    from icl_lab.transformers import install

    model = AutoModelForCausalLM.from_pretrained(folders["llama"])
    install(model, "ssmax")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "attention_rule" in name:
                p.fill_(0.37)
    model.save_pretrained(tmp_path / "mine")
    shutil.copy(folders["llama"] / "tokenizer.json", tmp_path / "mine")
    language = read(str(tmp_path / "mine"), CPU)
    windows = corpus_in(language.tokenizer, book).windows("held-out", stream(0), 2, 30)
    with language.ruled("ssmax", 64):
        learned = [p.unique().tolist() for n, p in language.model.named_parameters() if "attention_rule" in n]
        assert learned == [pytest.approx([0.37])] * 2
        own = losses(language, windows)
    assert own.mean().item() == pytest.approx(model(input_ids=windows, labels=windows).loss.item(), rel=1e-5)
    with language.ruled("softmax", 64):
        assert not torch.equal(losses(language, windows), own)
    with language.ruled("ssmax", 64):  # it stands there again, with what it has learned
        assert torch.equal(losses(language, windows), own)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "There is no model 'nowhere' here"),
        (["{empty}"], "There is no model"),
        (["{bare}"], "cannot be read as a causal language model"),
        (["{listed}"], "is no folder that a model was saved in"),
        (["{odd}"], "cannot be read as a causal language model"),
        (["{mute}"], "has no tokenizer that can be read"),
        (["{gpt2}", "--length", "97"], "has places for 96 tokens, got 97"),
        (["{gpt2}", "--needle", "--contexts", "90"], "has places for 96 tokens, got 100"),
        (["{llama}", "--text", "nowhere.txt"], "There is no text 'nowhere.txt' here"),
        (["{llama}", "--length", "5000"], "too few for windows of 5,000"),
        (["{llama}", "--attn", "softmaxx"], "No normalizer is called 'softmaxx'"),
        (["{llama}", "--attn", "cosformer:horizon=current"], "not served inside models"),
        (["{llama}", "--attn", "sima", "--needle", "--contexts", "120"], "sima"),
        (["{llama}", "--contexts", "1,x"], "'1,x' is not a list of whole numbers"),
    ],
)
def test_the_impossible_is_one_line_before_computing(folders, book, run, tmp_path, words, complaint):
    made = ("empty", "bare", "mute", "listed", "odd")
    for name in made:
        (tmp_path / name).mkdir()
    shutil.copy(folders["llama"] / "config.json", tmp_path / "bare")
    (tmp_path / "listed" / "config.json").write_text("[]")
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "gpt2", "n_layer": [1], "n_embd": "x"}')
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folders["llama"] / name, tmp_path / "mute")
    places = {name: str(folders[name]) for name in folders} | {n: str(tmp_path / n) for n in made}
    words = [word.format(**places) for word in words]
    text = [] if "--text" in words else ["--text", book]
    _, err = run.refused("lm", *words, "--attn", "softmax", *text, "--results", str(tmp_path / "r"))
    assert complaint in err
    assert len([line for line in err.splitlines() if line.startswith(("icl-lab:", "Error:"))]) == 1
    assert not list((tmp_path / "r").glob("lm-*"))


def test_without_transformers_one_line_says_what_to_install(folders, run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    _, err = run.refused("lm", str(folders["llama"]), "--attn", "softmax", "--results", str(tmp_path))
    assert err == "icl-lab: language models are read by transformers: pip install 'icl_lab[hf]'.\n"


def test_the_folder_of_a_model_is_looked_for_before_a_package(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "There is no model 'nowhere' here" in run.refused("lm", "nowhere", "--attn", "softmax")[1]
