"""The numbers and words that a page holds, before any browser."""

import base64
import hashlib
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icl_lab.analyses.attention import page
from icl_lab.pipeline import load_or_train
from icl_lab.tasks.base import Mark
from tests.analyses.attention.shown import run_of


def unpacked(part, rows, t):
    """Read back what the page holds: (l h r t), hidden cells NaN."""
    kind = {"f4": "<f4", "u2": "<u2", "u1": "u1"}[part["type"]]
    flat = np.frombuffer(base64.b64decode(part["bytes"]), kind).astype(float)
    if part["type"] != "f4":
        flat = part["low"] + part["step"] * flat
    visible = np.tri(rows, t, t - rows, dtype=bool)
    whole = np.full((len(flat) // visible.sum(), rows, t), np.nan)
    whole[:, visible] = flat.reshape(len(whole), -1)
    return whole


def used(model, prompt, layer=0):
    """The values (h t d) of a layer and what its attention makes of them (h t d), taken from inside the model."""
    caught = {}
    part = model.blocks[layer].attention
    attend = part.rule.attend

    def catch(q, k, v, visible):
        caught["v"], caught["o"] = v, attend(q, k, v, visible)
        return caught["o"]

    part.rule.attend = catch
    with torch.no_grad():
        model(prompt.tokens)
    part.rule.attend = attend
    return caught["v"][0].double().numpy(), caught["o"][0].double().numpy()


@pytest.mark.parametrize("rule", ["softmax", "ssa", "raw", "sparsemax", "stick-breaking"])
def test_weights_in_the_page_are_those_used(see, lab, rule):
    """The numbers in the page, times the values, are what the layer hands on."""
    found = see(rule, text="1,-2,3,70,-4,0.5")
    held = page.data(found)["frames"][0]["runs"][0]
    weights = np.nan_to_num(unpacked(held["weights"], 11, 11))
    v, o = used(load_or_train(run_of(found, lab), lab), found.asked.prompt)
    np.testing.assert_allclose(weights @ v, o, atol=1e-5 * np.abs(o).max())


@pytest.mark.slow
def test_rounded_means_keep_zeros_and_three_digits(see, sharpen):
    sharpen()
    found = see("sparsemax", means=2)
    frame = next(f for f in found.frames if f.axis == "length")
    held, rows = page.data(found)["frames"][found.frames.index(frame)]["runs"][0], len(frame.marks)
    back, true = unpacked(held["weights"], rows, rows), frame.maps[0].weights[0].double().numpy()
    seen = ~np.isnan(back)
    assert (true[seen] == 0).any()
    np.testing.assert_array_equal(back[seen] == 0, true[seen] == 0)
    np.testing.assert_allclose(back[seen], true[seen], atol=1.1 / 65535)
    back, true = unpacked(held["spread"], rows, rows), frame.maps[0].spread[0].numpy()
    np.testing.assert_allclose(back[seen], true[seen], atol=1.1 / 255)


def test_small_numbers_are_not_rounded_to_zero():
    small = np.array([0.0, 1e-9, 0.5, 1.0], dtype="<f4")
    held = page._levels(small, "<u2")
    assert list(np.frombuffer(base64.b64decode(held["bytes"]), "<u2")) == [0, 1, 32768, 65535]
    below = page._levels(np.array([-1.0, 0.0, 1.0], dtype="<f4"), "<u1")
    assert (below["low"], below["step"]) == (-1, pytest.approx(2 / 255))


def test_foot_of_the_page_names_run_weights_and_command(see, lab):
    found = see("ssa")
    object.__setattr__(found, "command", "icl-lab attention --prompt 1,-2,3,70")
    made = page.page(found, "Made on a machine.")
    run = run_of(found, lab)
    weights = (run.folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() in made
    said = [f"smoke-{run.spec.hash} / seed 0", "icl-lab attention --prompt 1,-2,3,70", "Made on a machine."]
    for words in (*said, "n, layer 0", "b, layer 0", "typed", "icl_lab 0."):
        assert words in made
    n = load_or_train(run, lab).blocks[0].attention.rule.n.tolist()
    assert f"{n[0]:.4g}, {n[1]:.4g}" in made


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_hostile_words_stay_words(see):
    found = see("ssa")
    object.__setattr__(found.runs[0], "name", HOSTILE)
    object.__setattr__(found.asked, "origin", HOSTILE)
    found.frames[0].marks[0] = Mark(HOSTILE, 1, HOSTILE, 1.0)
    object.__setattr__(found, "command", HOSTILE)
    text = page.page(found, HOSTILE)
    assert text.count("<script") == 2  # the data, and the page's own
    assert "<img" not in text
    held = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert held["runs"] == [HOSTILE]
    assert held["frames"][0]["tokens"][0]["text"] == HOSTILE


@pytest.mark.parametrize(("tokens", "ends"), [(60, " 59. Rows are"), (61, " 59 …. Rows are")])
def test_sixty_tokens_of_a_prompt_are_read_out(tokens, ends):
    marks = [SimpleNamespace(text=str(number), label="") for number in range(tokens)]
    assert ends in page._intro(SimpleNamespace(frames=[SimpleNamespace(marks=marks)]))
