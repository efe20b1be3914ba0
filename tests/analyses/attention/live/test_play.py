"""What a page that computes carries, and when it carries nothing and says why."""

import base64
import json
import re

import numpy as np
import pytest
import torch

from icl_lab import normalizers, tasks
from icl_lab.analyses import asking, publish
from icl_lab.analyses.attention import Attention, live, page, play
from icl_lab.analyses.attention.prompt import Asked
from icl_lab.analyses.attention.seen import Reading
from icl_lab.analyses.attention.window import Window
from icl_lab.pipeline import load_or_train
from icl_lab.tasks.base import plain
from tests.analyses.attention.shown import run_of


def test_a_page_carries_its_models_and_its_script(see, lab):
    found = see("ssa", "softmax")
    made = page.page(found, "here").html
    held = json.loads(re.search(r'id="data">(.*?)</script>', made, re.DOTALL)[1])["live"]
    assert live.engine() in made
    assert live.controls() in made
    assert made.count("</script") == 2
    assert "http" not in live.engine() + live.controls()
    model = load_or_train(run_of(found, lab), lab)
    state = {name: part for name, part in model.state_dict().items() if ".rule." not in name}
    numbers = np.frombuffer(base64.b64decode(held["models"][0]["bytes"]), "<f4")
    np.testing.assert_array_equal(numbers, torch.cat([part.flatten() for part in state.values()]).numpy())
    assert held["models"][0]["tensors"] == [[name, part.numel()] for name, part in state.items()]
    assert held["sizes"] == [len(numbers)] * 2
    assert held["tokens"] == found.asked.prompt.tokens.flatten().tolist()
    assert len(held["known"]) == 1  # models of one shape share what is known of rules
    n = np.frombuffer(base64.b64decode(held["models"][0]["parameters"][0][0]["n"]), "<f4")
    np.testing.assert_array_equal(n, model.blocks[0].attention.rule.n.detach().numpy())


def test_a_page_without_models_is_as_it_was(see):
    still = see("ssa", live=0)
    made = page.page(still, "here").html
    assert still.live is None
    assert "engine" not in made
    assert "live-" not in made
    assert not any("compute" in note for note in still.notes)


def test_models_that_are_too_large_are_left_out_with_a_line(see):
    found = see("ssa", "softmax", live=9_000)
    size = sum(found.live["sizes"]) if found.live else 0
    assert found.live is None, size
    (note,) = (note for note in found.notes if "compute" in note)
    assert re.search(r"\d\d,\d{3} numbers are more than the 9,000", note)
    assert note in page.page(found, "here").html


def test_random_places_are_left_out_with_a_line(see):
    found = see("softmax", settings=("model.positions=learned:random=40",))
    assert found.live is None
    assert any("places drawn at random" in note for note in found.notes)


def test_rules_and_position_codes_from_outside_are_left_out_with_a_line(build, own_parts, monkeypatch):
    from icl_lab.normalizers.softmax import Softmax

    normalizers.registry.add("mine")(type("Mine", (Softmax,), {"__doc__": "Mine.", "__module__": "mypackage"}))
    model = build("softmax")
    model.swap_rule("mine")
    monkeypatch.setattr(normalizers.registry, "source", lambda name: "mypackage" if name == "mine" else None)
    assert "'mine' comes from outside" in live.refusal(model, "learned")
    assert live.refusal(build("softmax"), "learned") == ""
    monkeypatch.setattr(normalizers.registry, "source", lambda name: None)
    assert "of the rule 'mine' it has no formula" in live.refusal(model, "learned")
    assert "'spiral' comes from outside" in live.refusal(build("softmax"), "spiral:turns=2")


def test_the_option_changes_no_study_of_before(runs_of):
    runs = runs_of("ssa")
    groups, plain_one = asking.labels(runs), Attention(prompt="1,2")
    assert "live" not in str(publish.record("attention", plain_one, groups, ""))
    assert "live" in str(publish.record("attention", Attention(prompt="1,2", live=0), groups, ""))


def laid(name):
    """What the page of a task without models would hold, and the prompt."""
    task = tasks.build(name)
    prompt = task.sample(torch.Generator().manual_seed(1), 1, 16)
    prompt = prompt.first(task.end(prompt))
    reading = Reading(None, task.answered(torch.zeros(1, prompt.tokens.shape[1], task.outputs), prompt), [], {})
    reading = Reading(reading.maps, reading.answers, [], {}, live.Carried({}, 0, {}))
    found, why = play.lay(task, Asked("", prompt, 16, "", {}), [reading], Window([0], [0]), 1)
    assert why == ""
    return task, prompt, found


@pytest.mark.parametrize("name", [name for name in tasks.names() if name != "text"])
def test_answers_of_every_task_are_written_as_the_task_writes_them(name):
    task, prompt, found = laid(name)
    kind, words = found["said"]["kind"], found["said"]["words"]
    t, rng = found["asked"][-1], torch.Generator().manual_seed(0)
    for _ in range(5):
        outputs = torch.zeros(1, prompt.tokens.shape[1], task.outputs)
        outputs[0, t] = 3 * torch.randn(task.outputs, generator=rng)
        values, true = outputs[0, t].tolist(), task.words(outputs, prompt, t)[0]
        if kind == "sign":
            head, tail = words[values[0] > 0]
            assert f"{head}{plain(values[0])}{tail}" == true
        elif kind == "class":
            assert words[int(np.argmax(values))] == true.partition(" (")[0]
        else:
            assert true.startswith(plain(values[0]))
    assert {len(each) for each in found["references"].values()} <= {len(found["asked"])}


@pytest.mark.parametrize("name", [name for name in tasks.names() if name != "text"])
def test_numbers_are_typed_where_tokens_are_numbers(name):
    task, prompt, found = laid(name)
    alone = task.width == 1 and not task.vocabulary
    assert found["editable"] == alone
    assert len(found["tokens"]) == prompt.tokens.numel()


def test_references_answer_as_the_task_says():
    task, prompt, found = laid("linear")
    answers = task.references()["bayes"](task.sample(torch.Generator().manual_seed(1), 1, 16))
    assert found["references"]["bayes"] == [plain(answers[0, t, 0].item()) for t in found["asked"]]
    assert found["truth"] == [plain(prompt.targets[0, t].item()) for t in found["asked"]]
