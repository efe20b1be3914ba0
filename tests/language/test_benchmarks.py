"""Benchmarks of lm_eval on items of our own, agreement and arithmetic, against log-probabilities taken by hand."""

import json
import math
import sys
from functools import partial

import pytest
import torch

from icl_lab.cli.main import cli
from icl_lab.errors import BadValue, LabError, RunFailed
from icl_lab.grid import Grid
from icl_lab.language import benchmark_report, convert
from icl_lab.language.benchmarks import BenchmarkQuestion, Evaluated, Score, Scores, measure
from icl_lab.language.model import read
from icl_lab.texts.corpus import corpus
from tests.language.test_convert import moved

CPU = torch.device("cpu")
AGREEMENT = [
    {"question": f"The {noun}{ending}{place}", "choices": [" is", " are"], "answer": answer}
    for noun in ("dog", "key", "book")
    for place in ("", " near the houses", " on the table")
    for answer, ending in enumerate(("", "s"))
]
ARITHMETIC = [
    {"question": f"{a} + {b} =", "choices": [f" {a + b}", f" {a + b + 1}", f" {a * b + 2}"], "answer": 0}
    for a in range(2, 6)
    for b in range(3)
]
YAML = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
fewshot_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Folder with the benchmarks ``icl_agreement`` and ``icl_arithmetic``, and two exported models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "items").mkdir()
    for name, items in (("icl_agreement", AGREEMENT), ("icl_arithmetic", ARITHMETIC)):
        file = tmp_path / "items" / f"{name}.json"
        file.write_text(json.dumps(items))
        (tmp_path / "items" / f"{name}.yaml").write_text(YAML.format(name=name, file=file))
    for attn in ("softmax", "ssa"):
        convert.save(moved(attn, positions="rotary", by=0.7), corpus(""), tmp_path / attn)
    return tmp_path


def question(*tasks, attns=(), models=("softmax", "ssa"), **more):
    return BenchmarkQuestion(models, attns, tasks, include="items", **more)


def log_probability(language, context, continuation):
    """Sum of the log-probabilities of the bytes of a continuation, by one pass over the whole text."""
    ids = torch.tensor([list((context + continuation).encode())])
    with torch.no_grad():
        logs = language.model(ids).logits[0, :-1].log_softmax(-1)
    start = len(context.encode())
    return sum(logs[at - 1, ids[0, at]].item() for at in range(start, ids.shape[1]))


@pytest.mark.slow
class TestWithTheHarness:
    """What takes the package lm_eval, which CI installs."""

    @pytest.fixture(autouse=True)
    def _harness(self, monkeypatch):
        """Lets the harness know our own benchmarks alone: to index its fourteen thousand takes seconds."""
        tasks = pytest.importorskip("lm_eval.tasks", reason="pip install 'icl_lab[eval]' for benchmarks")
        monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))

    def test_accuracies_are_those_of_log_probabilities_by_hand(self, place):
        found = measure(question("icl_agreement", "icl_arithmetic"), place / "kept", CPU)
        assert [(each.model, each.attn, each.scores.task) for each in found] == [
            (attn, attn, task) for attn in ("softmax", "ssa") for task in ("icl_agreement", "icl_arithmetic")
        ]
        for each in found:
            language = read(each.model, CPU)
            items = AGREEMENT if each.scores.task == "icl_agreement" else ARITHMETIC
            right, by_length = [], []
            for item in items:
                logs = [log_probability(language, item["question"], choice) for choice in item["choices"]]
                per_byte = [log / len(choice) for log, choice in zip(logs, item["choices"], strict=True)]
                right.append(float(max(range(len(logs)), key=logs.__getitem__) == item["answer"]))
                by_length.append(float(max(range(len(logs)), key=per_byte.__getitem__) == item["answer"]))
            scores = {score.metric: score for score in each.scores.scores}
            assert scores["acc"].each == right
            assert scores["acc"].value == pytest.approx(sum(right) / len(right))
            assert scores["acc_norm"].each == by_length

    @pytest.mark.exhaustive
    def test_each_normalizer_is_the_one_that_answers(self, place):
        attns = ("softmax", "average", "sparsemax")
        scores = {attn: [] for attn in attns}
        for each in measure(question("icl_agreement", "icl_arithmetic", models=("softmax",), attns=attns), place, CPU):
            scores[each.attn] += [score.each for score in each.scores.scores]
        assert len({repr(each) for each in scores.values()}) == 3

    @pytest.mark.exhaustive
    def test_answers_of_two_filters_are_kept_apart(self, place):
        """The model writes nothing but bytes by chance: no number is exact, and every digit is found by ``any``."""
        (place / "items" / "icl_written.yaml").write_text(
            YAML.format(name="icl_written", file=place / "items" / "icl_arithmetic.json").partition("output_type")[0]
            + """output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "0"
generation_kwargs: {until: ["."], max_gen_toks: 4}
filter_list:
  - {name: whole, filter: [{function: take_first}]}
  - {name: any, filter: [{function: regex, regex_pattern: "(nowhere)", fallback: "0"}, {function: take_first}]}
metric_list: [{metric: exact_match}]
"""
        )
        (found,) = measure(question("icl_written", models=("softmax",)), place / "kept", CPU)
        scores = {score.metric: (score.value, score.each) for score in found.scores.scores}
        assert scores == {
            "exact_match (whole)": (0.0, [0.0] * len(ARITHMETIC)),
            "exact_match (any)": (1.0, [1.0] * len(ARITHMETIC)),
        }

    @pytest.mark.exhaustive
    def test_what_is_finished_is_read_and_not_asked_again(self, place, monkeypatch):
        asked = question("icl_agreement", models=("softmax",))
        first = measure(asked, place / "kept", CPU)
        monkeypatch.setattr("icl_lab.language.benchmarks._scores", lambda *given: pytest.fail("asked again"))
        assert measure(asked, place / "kept", CPU) == first
        monkeypatch.undo()
        monkeypatch.chdir(place)
        for more, shown in (({"shots": 2}, (2, 18)), ({"limit": 5}, (0, 5)), ({"shots": 2, "limit": 5}, (2, 5))):
            (scores,) = measure(question("icl_agreement", models=("softmax",), **more), place / "kept", CPU)
            assert (scores.scores.shots, scores.scores.scores[0].count) == shown
        items = [*AGREEMENT[:-1], {**AGREEMENT[-1], "answer": 0}]
        (place / "items" / "icl_agreement.json").write_text(json.dumps(items))
        assert measure(asked, place / "kept", CPU)[0].scores.scores[0].value != first[0].scores.scores[0].value

    @pytest.mark.exhaustive
    def test_a_damaged_file_is_named(self, place):
        asked = question("icl_agreement", models=("softmax",))
        measure(asked, place / "kept", CPU)
        (kept,) = (place / "kept").iterdir()
        kept.write_bytes(kept.read_bytes()[:-5])
        with pytest.raises(RunFailed, match=f"{kept} is damaged"):
            measure(asked, place / "kept", CPU)

    @pytest.mark.parametrize(
        ("asked", "complaint"),
        [
            (question("icl_agrement"), "has no benchmark 'icl_agrement'. Did you mean icl_agreement"),
            (question("icl_agreement", models=("nowhere",)), "There is no model 'nowhere' here"),
            (question("icl_agreement", attns=("sofmax",)), "Did you mean 'softmax'"),
            (question("icl_agreement", attns=("forget",)), "'forget' weighs keys by the tokens themselves"),
        ],
    )
    def test_what_cannot_be_asked_is_refused_beforehand(self, place, monkeypatch, asked, complaint):
        monkeypatch.setattr("icl_lab.language.benchmarks._digests", lambda *given: pytest.fail("data was read"))
        with pytest.raises(LabError, match=complaint):
            measure(asked, place / "kept", CPU)

    @pytest.mark.exhaustive
    def test_a_benchmark_whose_data_is_missing_is_named(self, place):
        (place / "items" / "icl_agreement.json").unlink()
        with pytest.raises(BadValue, match="the benchmark icl_agreement cannot be read: "):
            measure(question("icl_agreement"), place / "kept", CPU)

    def test_the_command_writes_a_study(self, place, capsys):
        words = ["lm-eval", "softmax", "--attn", "softmax,ssa", "--tasks", "icl_agreement", "--include", "items"]
        cli.main([*words, "--shots", "3", "--limit", "6"], standalone_mode=False)
        printed = capsys.readouterr().out
        assert "| icl_agreement | acc | 3 | 6 |" in printed
        (folder,) = place.glob("results/lm-eval-softmax-*")
        grid = Grid.read(folder / "scores.csv")
        assert grid.axes == ["shots"]
        assert set(grid.frame["attn"]) == {"softmax", "ssa"}


def evaluated(attn, right, task="arc_easy", model="mine", metric="acc"):
    mean = sum(right) / len(right)
    scores = Scores(task, 0, [Score(metric, mean, 0.02, len(right), list(map(float, right)))])
    return Evaluated(model, "0123456789ab", attn, scores)


def test_differences_are_paired_over_items():
    lines = benchmark_report.table([evaluated("softmax", [1, 0, 0, 1]), evaluated("ssa", [1, 1, 0, 1])])
    (row,) = [line for line in lines if line.startswith("| arc_easy")]
    # Differences 0, 1, 0, 0: mean 0.25, standard deviation 0.5, standard error 0.25.
    assert f"| +25 ± {100 * 1.96 * 0.25:.0f} |" in row
    assert "50.0 [15.0, 85.0]" in row  # Wilson for 2 of 4


def test_printed_accuracies_stand_beside_ours():
    lines = benchmark_report.table([evaluated("softmax", [1, 0]), evaluated("ssa", [1, 1])])
    assert any(line.endswith("| 45.5 → 47.9 |") for line in lines)
    assert any("GPT-2 124M, FineWeb, 50k steps" in line for line in lines)
    own = [evaluated(attn, [1, 0], task="own") for attn in ("softmax", "ssa")]
    assert "printed" not in "\n".join(benchmark_report.table(own)).lower()


def test_every_printed_benchmark_has_a_name_in_the_harness():
    printed = benchmark_report.published.load(benchmark_report.PRINTED)
    assert {row["task"].text for row in printed.rows} == set(benchmark_report.ROWS.values())


def test_a_metric_that_is_no_mean_has_no_paired_interval():
    found = [
        Evaluated("mine", "0123456789ab", attn, Scores("words", 0, [Score("perplexity", value, math.nan, 9, [])]))
        for attn, value in (("softmax", 20.0), ("ssa", 18.5))
    ]
    assert "| 20 | 18.5 | −1.5 |" in "\n".join(benchmark_report.table(found))


def test_models_of_one_name_are_told_apart_by_their_normalizer():
    found = [evaluated("softmax", [1, 0], model="a"), evaluated("ssa", [1, 1], model="b")]
    assert list(benchmark_report.labels(found).values()) == ["a (softmax)", "b (ssa)"]
    assert list(benchmark_report.labels(found[:1]).values()) == ["softmax"]


def test_without_the_harness_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    convert.save(moved(), corpus(""), tmp_path / "mine")
    with pytest.raises(BadValue, match=r"pip install 'icl_lab\[eval\]'"):
        measure(BenchmarkQuestion((str(tmp_path / "mine"),), (), ("arc_easy",)), tmp_path / "kept", CPU)
