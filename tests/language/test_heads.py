"""What heads of a language model attend to: against the weights that the model itself gives, and formulas."""

import math

import pytest
import torch

from icl_lab.grid import Grid
from icl_lab.language import heads_report
from icl_lab.language.heads import followed, octaves
from icl_lab.language.model import read
from icl_lab.rng import stream
from icl_lab.texts.corpus import corpus_in

CPU = torch.device("cpu")


@pytest.fixture
def llama(folders):
    return read(str(folders["llama"]), CPU)


@pytest.fixture
def windows(llama, book):
    return corpus_in(llama.tokenizer, book).windows("held-out", stream(0, "w"), 3, 39)  # 40 tokens


def value(rows, **where):
    (found,) = [row["value"] for row in rows if all(row[key] == wanted for key, wanted in where.items())]
    return found


def test_heads_are_read_at_octaves_and_at_the_end():
    assert octaves(40) == [4, 8, 16, 32, 40]
    assert octaves(64) == [4, 8, 16, 32, 64]
    assert octaves(3) == [3]


@pytest.mark.slow
def test_statistics_are_those_of_the_model_s_own_weights(llama, windows):
    with llama.ruled("softmax", 64):
        heads, _ = followed(llama, windows)
    llama.model.set_attn_implementation("eager")
    own = llama.model(input_ids=windows, output_attentions=True).attentions
    assert {row["keys"] for row in heads} == {4, 8, 16, 32, 40}
    for layer, head, keys in ((0, 0, 4), (1, 3, 16), (1, 2, 40)):
        row = own[layer][:, head, keys - 1, :keys].double()
        where = {"layer": layer, "head": head, "keys": keys}
        assert value(heads, metric="largest", **where) == pytest.approx(row.amax(1).mean().item(), rel=1e-5)
        assert value(heads, metric="first", **where) == pytest.approx(row[:, 0].mean().item(), rel=1e-5)
        assert value(heads, metric="itself", **where) == pytest.approx(row[:, -1].mean().item(), rel=1e-5)
        spread = -(row * row.log()).sum(1).mean().item() / math.log(keys)
        assert value(heads, metric="entropy", **where) == pytest.approx(spread, rel=1e-5)
    assert all(row["count"] == 3 for row in heads)


def test_a_rule_has_the_inverse_temperature_of_its_formula(llama, windows):
    with llama.ruled("ssmax:s=2", 64):
        heads, _ = followed(llama, windows)
    for keys in (4, 40):
        found = value(heads, metric="temperature", layer=1, head=1, keys=keys)
        assert found == pytest.approx(2 * math.log(keys), rel=1e-3)


def test_heads_that_copy_one_token_are_saturated(llama, windows):
    with llama.ruled("temperature:tau=0.000001", 64):
        sharp, _ = followed(llama, windows)
    with llama.ruled("softmax", 64):
        flat, _ = followed(llama, windows)
    assert value(sharp, metric="saturated", layer=0, head=2, keys=40) == 1
    assert value(flat, metric="saturated", layer=0, head=2, keys=40) == 0


def test_norms_are_of_what_enters_each_layer(llama, windows):
    with llama.ruled("softmax", 64):
        _, layers = followed(llama, windows)
    entered = {}
    for layer, block in enumerate(llama.model.model.layers):
        block.register_forward_pre_hook(lambda module, inputs, layer=layer: entered.update({layer: inputs[0]}))
    llama.model(input_ids=windows)
    assert {row["layer"] for row in layers} == {0, 1}
    for layer, state in entered.items():
        sizes = state.norm(dim=-1)
        assert value(layers, metric="norm", layer=layer) == pytest.approx(sizes[:, 1:].mean().item(), rel=1e-5)
        assert value(layers, metric="norm-first", layer=layer) == pytest.approx(sizes[:, 0].mean().item(), rel=1e-5)


def test_the_table_has_medians_slopes_and_the_greatest_ratio():
    def row(metric, number, **where):
        return {"attn": "softmax", **where, "metric": metric, "value": number, "stderr": 0, "count": 2}

    rows = []
    for head, factor in enumerate((1.0, 3.0, 2.0)):
        for keys in (4, 8, 16):
            told = {"largest": factor / keys, "entropy": 0.5, "first": 0.25, "temperature": factor}
            told["saturated"] = float(head == 1)
            rows += [row(metric, number, layer=0, head=head, keys=keys) for metric, number in told.items()]
    norms = []
    for layer, first in enumerate((10.0, 90.0, 40.0)):
        norms += [row("norm-first", first, layer=layer), row("norm", 10.0 + layer, layer=layer)]
    who = {"task": "t", "preset": "p", "spec": "s", "seed": 0}
    text = heads_report.table(Grid.of(rows, ["layer", "head", "keys"], **who), Grid.of(norms, ["layer"], **who))
    told = "\n".join(text)
    assert "| largest weight | n 4 | n 16 | slope |" in told
    assert "| `softmax` | 0.5 | 0.12 | −1.00 |" in told
    assert "| `softmax` | 0.333 | 0.333 |" in told
    assert "| `softmax` | 8.2 | 1 | 12 |" in told


@pytest.mark.slow
def test_the_command_writes_what_heads_do(folders, book, run, tmp_path):
    words = ["lm", str(folders["gpt2"]), "--attn", "softmax,ssa", "--text", book, "--length", "40", "--windows", "2"]
    code, out, err = run(*words, "--follow", "--results", str(tmp_path / "r"))
    assert code == 0, err
    (folder,) = (tmp_path / "r").glob("lm-*")
    assert {"attention.csv", "hidden.csv", "attention.png", "attention.svg"} <= {p.name for p in folder.iterdir()}
    assert "largest weight" in out
    assert "first over others" in out
    grid = Grid.read(folder / "attention.csv")
    assert grid.values("keys") == [4, 8, 16, 32, 40]
    assert grid.values("attn") == ["softmax", "ssa"]
