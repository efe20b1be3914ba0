"""Tasks of a user's own: through every command, or refused in one line before anything is trained."""

import re
from pathlib import Path

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import sweep
from icl_lab.runs.measure import draw
from icl_lab.runs.spec import resolve
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt
from tests.cases import few

HERE = Path(__file__).parent
SMALL = ["--preset", "smoke", "--set", "train.steps=10 train.batch=4 train.warmup=2 model.width=8 test.prompts=64"]
pytestmark = pytest.mark.usefixtures("outside", "quick_pictures")


@pytest.mark.slow
@pytest.mark.parametrize("task", few(1, ["lookup", "sine"]))
def test_an_outside_task_is_compared(run, task, tmp_path):
    out, err = run.ok("compare", "--task", task, "--attn", "softmax", "--attn", "ssa", "--seeds", "2", *SMALL)
    assert tasks.build(task).summary.words(tasks.build(task).log_scale) in out
    assert "squared error" not in out or task == "sine"
    assert "reference:" not in out
    assert "clip B" not in out
    (table,) = (tmp_path / "results").glob(f"compare-{task}-smoke-*/comparison.csv")
    assert len(table.read_text().splitlines()) > 4


@pytest.mark.exhaustive
def test_lookup_learns_more_than_chance(tiny, lab):
    grid = sweep(resolve("lookup", "softmax", "smoke", ["test.prompts=64"]), 0, lab)
    assert grid.at(attn="softmax", metric="error", pairs=4, length=32) < 0.7  # chance errs in 7 of 8


def test_lookup_asks_at_other_tokens_in_each_prompt():
    task = tasks.build("lookup")
    prompt = task.sample(stream(0, "x"), 8, 24)
    assert prompt.tokens.dtype == torch.int64
    assert len({tuple(row.nonzero().flatten().tolist()) for row in prompt.scored}) > 1
    key = prompt.tokens[0, 0]
    (place,) = ((prompt.tokens[0] == key) & prompt.scored[0]).nonzero().flatten()
    assert prompt.targets[0, place] == prompt.tokens[0, 1] - task.keys
    with pytest.raises(BadValue, match="lookup asks each prompt at other tokens"):
        task.asking(24)
    assert tasks.build("sine").asking(5) == 8
    assert prompt.end == int(prompt.scored.any(0).nonzero().max()) + 1


def test_whole_numbers_are_read_by_an_embedding(tiny):
    task = tasks.build("lookup")
    spec = tiny("lookup", "softmax", "test.axes.length=24")
    model = GPT2(spec.model, spec.reading(task), "softmax", stream(0, "init"))
    assert tuple(model.read_in.weight.shape) == (17, 16)
    assert 0.015 < model.read_in.weight.std() < 0.025
    prompt = draw(task, 24, spec.test, {"pairs": 2.0})
    outputs = model(prompt.tokens)
    assert outputs.shape == (64, 24, 8)
    other = prompt.tokens.clone()
    other[:, 5] = (other[:, 5] + 1) % 17
    assert torch.equal(model(other)[:, :5], outputs[:, :5])
    assert not torch.equal(model(other)[:, 5], outputs[:, 5])


@pytest.mark.slow
def test_lookup_is_shown_with_its_own_marks(run, tmp_path):
    words = ["--task", "lookup", "--attn", "softmax", "--prompt", "random:length=24,pairs=2,seed=3", "--live", "0"]
    _, err = run.ok("attention", *words, *SMALL)
    (folder,) = (tmp_path / "results").glob("attention-*")
    answers = (folder / "answers.csv").read_text().splitlines()
    assert len(answers) == 1 + 2
    assert re.search(r"\bK\d\b", (folder / "attention.html").read_text())


@pytest.mark.parametrize("missing", ["marks", "words"])
def test_tokens_without_words_are_not_shown(run, missing, tmp_path):
    lookup = tasks.registry.part("lookup")
    own = {name: value for name, value in vars(lookup).items() if name != missing}
    tasks.registry.add("mute")(type("Mute", lookup.__bases__, own))
    _, err = run.refused("attention", "--task", "mute", "--attn", "softmax", "--prompt", "random:length=24", *SMALL)
    assert f"mute has no words for its {'tokens' if missing == 'marks' else 'answers'}" in err
    assert not list(tmp_path.rglob("model.safetensors"))


def test_vectors_are_not_printed_as_numbers():
    lookup = tasks.registry.part("sine")
    for changes in ({"width": 2}, {"roles": 3}, {"vocabulary": 4}):
        task = type("Odd", (lookup,), changes)()
        prompt = Prompt(torch.zeros(1, 6, 2), torch.zeros(1, 6), torch.ones(1, 6, dtype=torch.bool))
        with pytest.raises(BadValue, match="has no words for its tokens"):
            wording.marks(task, prompt)


@pytest.mark.slow
def test_the_example_of_the_docs_runs_as_printed(run):
    text = (HERE.parents[1] / "docs" / "add-a-task.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert block == (HERE.parent / "examples" / "sine.py").read_text()
    assert len(block.splitlines()) <= 50
    assert len((HERE.parent / "examples" / "lookup.py").read_text().splitlines()) <= 60
    del tasks.registry._parts["sine"]
    exec(compile(block, "sine.py", "exec"), {"__name__": "sine"})
    out, err = run.ok("sweep", "--task", "sine", "--attn", "ssa", *SMALL)
    assert "mean squared error: length down, frequency across" in out
