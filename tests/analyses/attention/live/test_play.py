"""What a page that computes carries, and when it carries nothing and says why."""

import base64
import html
import json
import re

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.attention import live, page
from icl_lab.analyses.attention.live import payload
from icl_lab.analyses.attention.maps import Reading
from icl_lab.analyses.attention.prompt import Asked, Window
from icl_lab.base.errors import UnknownName
from icl_lab.normalizers.softmax import Softmax
from icl_lab.pipeline import load_or_train
from icl_lab.tasks import wording
from icl_lab.tasks.base import plain
from tests.analyses.attention.shown import run_of


@pytest.mark.slow
def test_a_page_carries_its_models_and_its_script(see, lab):
    found = see("ssa", "softmax", offer="ssmax")
    made = page.page(found, "here")
    held = json.loads(re.search(r'id="data">(.*?)</script>', made, re.DOTALL)[1])["live"]
    assert live.engine() in made
    assert live.controls() in made
    assert made.count("</script") == 2
    assert "http" not in live.engine() + live.controls()
    model = load_or_train(run_of(found, lab), lab)
    for first, second in ((0, 1), (1, 0)):
        ours, other = held["models"][first], held["models"][second]
        assert ours["trunk"]["graph"] == other["trunk"]["graph"]  # models of one shape share a graph
        assert dict(ours["swaps"])["ssmax"] == dict(other["swaps"])["ssmax"]
    numbers = np.frombuffer(base64.b64decode(held["models"][0]["trunk"]["numbers"]), "<f4")
    assert len(numbers) == held["models"][0]["size"]
    table = model.positions.table.detach().flatten().numpy()
    at = held["models"][0]["trunk"]["shapes"].index(list(model.positions.table.shape))
    before = sum(int(np.prod(shape)) for shape in held["models"][0]["trunk"]["shapes"][:at])
    np.testing.assert_array_equal(numbers[before : before + len(table)], table)
    assert held["tokens"] == found.asked.prompt.tokens.flatten().tolist()


@pytest.mark.slow
def test_normalizers_that_do_not_fit_are_left_out_with_a_line(see):
    found = see("softmax", offer="ssmax four-functions")  # which asks for four heads
    assert [choice for choice, _ in found.live["models"][0]["swaps"]] == ["ssmax"]
    (note,) = (note for note in found.notes if "offer" in note)
    assert note.startswith("The page does not offer 'four-functions': ")
    assert note in html.unescape(page.page(found, "here"))


def test_an_unknown_name_is_refused_before_training(see):
    with pytest.raises(UnknownName, match="No normalizer is called 'nonsense'"):
        see("softmax", offer="ssmax nonsense")


@pytest.mark.slow
def test_a_normalizer_without_graph_shows_stored_maps(see, monkeypatch):
    def peeking(self, q, k, visible):
        return softmax_weights(self, q, k if q.max() > 1 else -k, visible)

    softmax_weights = Softmax.weights
    monkeypatch.setattr(Softmax, "weights", peeking)
    found = see("softmax")
    assert found.live is None
    (note,) = (note for note in found.notes if "compute" in note)
    assert note.startswith("This page cannot compute the model itself: the normalizer 'softmax' decides")
    assert note in html.unescape(page.page(found, "here"))


def test_a_page_without_models_is_as_it_was(see):
    still = see("ssa", live=0)
    made = page.page(still, "here")
    assert still.live is None
    assert "engine" not in made
    assert "live-" not in made
    assert not any("compute" in note for note in still.notes)


@pytest.mark.parametrize(("said", "options"), [
    (r"\d\d,\d{3} numbers are more than the 9,000", {"live": 9_000}),
    ("places drawn at random", {"settings": ("model.positions=learned:random=40",)}),
])  # fmt: skip
def test_models_that_cannot_be_computed_have_a_line(see, said, options):
    found = see("ssa", "softmax", **options)
    assert found.live is None
    (note,) = (note for note in found.notes if "compute" in note)
    assert re.search(said, note)
    assert note in page.page(found, "here")


def laid(name):
    """What the page of a task without models would hold, and the prompt."""
    task = tasks.build(name)
    prompt = task.sample(torch.Generator().manual_seed(1), 1, 16)
    prompt = prompt.first(prompt.end)
    answers = wording.answered(task, torch.zeros(1, prompt.tokens.shape[1], task.outputs), prompt)
    reading = Reading(None, answers, [], {}, live.Exported({}, 0, live.OperatorGraph([], [], ""), [], {}, {}))
    found, why = payload.lay(task, Asked("", prompt, 16, "", {}), [reading], Window([0], [0]), 1)
    assert why == ""
    return task, prompt, found


@pytest.mark.parametrize("name", [name for name in tasks.names() if name != "text"])
@pytest.mark.slow
def test_answers_are_written_as_the_task_writes_them(name):
    task, prompt, found = laid(name)
    assert found["editable"] == (task.width == 1 and not task.vocabulary)  # typed where tokens are numbers
    assert len(found["tokens"]) == prompt.tokens.numel()
    kind, words = found["said"]["kind"], found["said"]["words"]
    t, rng = found["asked"][-1], torch.Generator().manual_seed(0)
    for _ in range(5):
        outputs = torch.zeros(1, prompt.tokens.shape[1], task.outputs)
        outputs[0, t] = 3 * torch.randn(task.outputs, generator=rng)
        values, true = outputs[0, t].tolist(), wording.words(task, outputs, prompt, t)[0]
        if kind == "sign":
            head, tail = words[values[0] > 0]
            assert f"{head}{plain(values[0])}{tail}" == true
        elif kind == "class":
            assert words[int(np.argmax(values))] == true.partition(" (")[0]
        elif task.outputs == 1:
            assert true.startswith(plain(values[0]))
    assert {len(each) for each in found["references"].values()} <= {len(found["asked"])}


def test_references_answer_as_the_task_says():
    task, prompt, found = laid("linear")
    answers = task.references()["bayes"](task.sample(torch.Generator().manual_seed(1), 1, 16))
    assert found["references"]["bayes"] == [plain(answers[0, t, 0].item()) for t in found["asked"]]
    assert found["truth"] == [plain(prompt.targets[0, t].item()) for t in found["asked"]]
