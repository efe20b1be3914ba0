"""The example of docs/language-models.md runs as printed."""

import re
from pathlib import Path

import torch

import icl_lab
from icl_lab import normalizers

PAGE = Path(icl_lab.__file__).parent.parent / "docs" / "language-models.md"


def test_the_example_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)[0]
    there = {"__name__": "example"}
    exec(compile(example, "example.py", "exec"), there)
    assert there["names"] == ["transformer.h.0.attn", "transformer.h.1.attn"]
    first, second = (there[name].transformer.state_dict() for name in ("model", "again"))
    assert all(torch.equal(first[name], tensor) for name, tensor in second.items())
    assert not any("attention_rule" in name for name in second)
    numbers = there["model"].transformer.h[0].attn.attention_rule.s
    start = normalizers.build("ssmax:s=swap", heads=4, head_dim=8, train_tokens=64).s
    assert torch.allclose(numbers, start, atol=0.02)
    assert (numbers != start).all()  # they have learned
