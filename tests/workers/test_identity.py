"""Whether a worker may work for a driver."""

import pytest

from icl_lab.workers.identity import hello, refusal, source

OURS = {"icl_lab": "0.1.0", "commit": "abc", "source": "123", "torch": "2.13.0+cpu", "host": "laptop"}


@pytest.mark.parametrize(
    "other",
    [
        {"icl_lab": "0.2.0"},
        {"commit": "def"},
        {"source": "456"},
        {"torch": "2.12.1+cpu"},
        {"commit": "unknown", "source": "456"},
    ],
)
def test_another_state_is_refused_in_a_line_that_names_both(other):
    said = refusal(OURS, OURS | other, "gpu1")
    assert said.startswith("gpu1 has icl_lab ")
    assert "\n" not in said
    for state in (OURS, OURS | other):
        words = f"icl_lab {state['icl_lab']} (commit {state['commit']}, source {state['source']}) with torch"
        assert f"{words} {state['torch']}" in said
    assert refusal(OURS, {}, "gpu1")


@pytest.mark.parametrize(
    "other", [{}, {"host": "gpu1"}, {"torch": "2.13.0+cu130"}, {"commit": "unknown"}, {"commit": "abc-dirty"}]
)
def test_the_same_state_is_not(other):
    assert refusal(OURS, OURS | other, "gpu1") == ""


def test_the_checksum_of_the_source_follows_every_file(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("")
    before = source(tmp_path)
    assert before == source(tmp_path)
    (tmp_path / "b.py").write_text("x = 2\n")
    assert source(tmp_path) != before
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    assert len({before, source(tmp_path), source()}) == 3
    assert hello()["source"] == source()
