"""Answers beside the truth, weights as CSV, the finding and the figure."""

import csv
import gzip
import io

import numpy as np
import pytest

from icl_lab.analyses.attention import report
from icl_lab.figures.base import encode
from icl_lab.tasks.base import ScoredAnswer


def test_answers_stand_beside_the_truth(see):
    found = see("softmax", "ssa")
    head, rows = report.answers_table(found)
    assert head == ["token", "truth", "softmax", "softmax: error", "ssa", "ssa: error"]
    assert [row[:2] for row in rows] == [
        ["x₁ = 1", "True"], ["x₂ = −2", "False"], ["x₃ = 3", "False"], ["x₄ = 70", "False"],
    ]  # fmt: skip
    for shown, column in zip(found.runs, (2, 4), strict=True):
        logits = found.frames[0].maps[found.runs.index(shown)].outputs[0, ::2, 0]
        assert [row[column].startswith("True") for row in rows] == [bool(z > 0) for z in logits]
        wrong = [str(int((z > 0) != (row[1] == "True"))) for z, row in zip(logits, rows, strict=True)]
        assert [row[column + 1] for row in rows] == wrong


def test_a_finding_names_answers_truth_and_key(see):
    found = see("softmax", "ssa")
    for shown, maps in zip(found.runs, found.frames[0].maps, strict=True):
        object.__setattr__(shown, "answers", [*shown.answers[:-1], ScoredAnswer(6, f"{shown.name}'s", "False", 1.0)])
        maps.weights[:] = 0.0
    softmax, ssa = (each.weights for each in found.frames[0].maps)
    softmax[0, 0, -1, 2], softmax[0, 1, -1, 2], softmax[0, 0, -1, 3] = 0.4, 0.2, 0.5
    ssa[0, 0, -1, 5] = -0.9  # weights of any sign count by their size
    assert report.finding(found) == (
        "At x₄ = 70 softmax answers softmax's and ssa answers ssa's; the truth is False. The last query has its "
        "greatest weight, the mean over the heads shown, on x₂ = −2 in softmax (0.3) and on y₃ = False in ssa (0.45)."
    )


@pytest.mark.slow
def test_files_hold_every_visible_weight(see):
    found = see("softmax", "ssa", text="random:length=6")
    files = report.files(found)
    assert set(files) == {"weights.csv", "answers.csv"}
    rows = list(csv.DictReader(io.StringIO(files["weights.csv"])))
    assert len(rows) == 2 * 2 * (11 * 12 // 2)
    one = [row for row in rows if (row["attn"], row["layer"], row["head"], row["query"]) == ("ssa", "0", "1", "10")]
    assert [float(row["weight"]) for row in one] == pytest.approx(found.frames[0].maps[1].weights[0, 1, 10].tolist())
    assert one[3]["key_token"] == found.frames[0].marks[3].label
    assert any(line.startswith("| ssa | 0.1 |") for line in report.table(found))
    assert b"CreationDate" not in encode(report.figure(found, "attention"), "pdf")


def test_long_table_of_weights_is_compressed(see, monkeypatch):
    found = see("softmax", text="1,-2")
    monkeypatch.setattr(report, "LONG", 100)
    files = report.files(found)
    assert set(files) == {"answers.csv", "weights.csv.gz"}
    packed = files["weights.csv.gz"]
    assert gzip.decompress(packed).decode() == report.weights_csv(found)
    assert packed[4:8] == b"\0\0\0\0"  # no time


@pytest.mark.slow
def test_figure_hatches_hidden_cells_and_dots_zeros(see, sharpen):
    sharpen()
    found = see("sparsemax", "softmax", text="5,-9,30,-70,40")
    figure = report.figure(found, "a title")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * 1 * 2
    shown = panels[0].images[0].get_array()
    hidden = np.triu(np.ones((9, 9), dtype=bool), 1)
    np.testing.assert_array_equal(np.ma.getmaskarray(np.ma.masked_invalid(shown)), hidden)
    zeros = ((found.frames[0].maps[0].weights[0, 0].numpy() == 0) & ~hidden).sum()
    assert sum(len(dots.get_offsets()) for dots in panels[0].collections) == zeros > 0
    assert [tick.get_text() for tick in panels[0].get_yticklabels()][-1] == "x₅ = 40"
    assert figure.get_suptitle().startswith("a title of sparsemax, softmax\n")
    assert panels[3].get_title() == "softmax, layer 0, head 1"
