"""What every analysis writes: files, columns, axes, metrics and numbers of rows."""

import io

import pandas as pd
import pytest
import torch

from icl_lab import analyses
from icl_lab.analyses import publish, runner
from icl_lab.analyses.context import Context
from icl_lab.analyses.deviant import Deviant
from icl_lab.analyses.heads import Heads
from icl_lab.analyses.law import Law
from icl_lab.analyses.needle import NeedleScores
from icl_lab.analyses.probe import Probe
from icl_lab.analyses.saturation import Saturation
from icl_lab.model.gpt2 import GPT2

pytestmark = pytest.mark.usefixtures("quick_pictures")

WHO, WHAT = ["task", "attn", "preset", "spec", "seed"], ["metric", "value", "stderr", "count"]
NEEDLE = ("needle:alphabet=4,keys=2", "test.axes.length=32,48", "test.axes.depth=50")
LINEAR, EVERY = ("linear", "test.axes.sigma_x=1,3", "test.axes.sigma_f=1"), ("every:balance=half",)
ROW_METRICS = {"largest", "top-2", "top-5", "entropy", "effective", "first", "itself", "previous"}
HEALED = ("weights", "attention", "mlp", "outputs", "input", "residual")
STREAM = {f"{kind}-healed" for kind in HEALED} | {"attention-norm", "mlp-norm", "stream-norm"}
ANSWERS = {"last", "balanced-last", "flip-with", "flip-against", "as-largest"}
DISTURBED = {"largest", "effective", "distance", "deviant", "theory"}

# Two seeds of one normalizer, one layer, two heads. Of each file: its axes, its metrics, and its rows of one model.
CASES = {
    "context": (
        Context(lengths=(5, 12), prompts=64),
        LINEAR,
        {"context": (["length"], {"error"}, 2), "prompts": (["length", "prompt"], {"error"}, 2 * 64)},
    ),
    "deviant": (
        Deviant(factors=(1.0, 10.0), prompts=64),
        LINEAR,
        {
            "deviant": (["position", "factor"], {"mse", "recovery"}, 2 * 2),
            "positions": (["position", "factor", "index"], {"error"}, 2 * 12),
            "prompts": (["position", "factor", "prompt"], {"mse"}, 2 * 64),
        },
    ),
    "heads": (
        Heads(prompts=64),
        LINEAR,
        # training, sigma_x = 3 and length 5; places 1, 2, 3, 4, 7, 12 of 12 and 1, 2, 3, 4, 5 of 5
        {
            "heads": (
                ["sigma_x", "sigma_f", "length", "layer", "head", "index"],
                ROW_METRICS | {"negative", "numbers", "answers"},
                11 * 2 * (6 + 6 + 5),
            )
        },
    ),
    "needle": (
        NeedleScores(length=40, trials=10),
        NEEDLE,
        {
            "heads": (["length", "layer", "head"], {"needle-score"}, 2),
            "trials": (["length", "trial"], {"top", "outcome"}, 2 * 10),
        },
    ),
    "probe": (
        Probe(factors=(10.0,), prompts=64),
        EVERY,
        {
            "probe": (
                ["layer", "factor"],
                {"together", "alone-deviant", "alone-others", "probe-deviant", "probe-others"},
                2 * (3 + 2 * 2),
            )
        },
    ),
    "saturation": (
        Saturation(factors=(10.0,), prompts=64),
        EVERY,
        {
            "heads": (["layer", "head", "factor"], DISTURBED | {"deviant-against"}, 6 * 2 * 2),
            "errors": (["factor"], ANSWERS, 5 * 2),
            "prompts": (["factor", "prompt"], ANSWERS | {"patched"}, (5 * 2 + 1) * 64),  # one factor is patched
            "patches": (["layer", "head", "factor"], {"recovered"}, 2 + 1 + 1),
            # four kinds in the one layer and in all, two after it; three norms
            "stream": (["layer", "factor"], STREAM, 4 * 2 + 2 + 3),
        },
    ),
}
BESIDE = {"saturation": ("heads", "stream")}  # further figures
RULES = {"law": "ssmax-free"}


@pytest.fixture
def passes(monkeypatch):
    """Of each pass through a model: whether it is one of training, and whether gradients are kept for it."""
    kept, forward = [], GPT2.forward_tensors

    def seen(model, *args, **options):
        kept.append((model.training, torch.is_grad_enabled()))
        return forward(model, *args, **options)

    monkeypatch.setattr(GPT2, "forward_tensors", seen)
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, "law"])
def test_what_is_written_has_its_parts_and_reads_back(name, runs, lab, passes, tmp_path):
    analysis, (choice, *settings), files = CASES.get(name, (Law(), LINEAR, {}))
    groups = runs(choice, RULES.get(name, "softmax"), seeds=2, settings=settings)
    assert type(analysis) is analyses.registry.part(name)
    analysis = runner.checked(analysis, groups)
    found = runner.ask(analysis, groups, lab)
    # What a model that is asked computes would else stay in memory for as long as its answers do.
    assert (False, True) not in passes
    written = analysis.files(found)
    for file, (axes, metrics, rows) in files.items():
        table = pd.read_csv(io.StringIO(written[f"{file}.csv"]))
        assert list(table.columns) == [*WHO, *axes, *WHAT]
        models = table[~table["attn"].str.startswith("reference:")]
        assert set(models["metric"]) == metrics
        assert models.groupby("seed").size().to_dict() == {0: rows, 1: rows}
        assert not table.duplicated([*WHO, *axes, "metric"]).any()
    study = publish.record(name, analysis, groups, f"icl-lab {name}")
    text = publish.publish(study, analysis, found, groups, tmp_path / name, "and more")
    stored = analysis.read(tmp_path / name)
    assert analysis.files(stored) == written
    assert analysis.seeds(stored) == analysis.seeds(found) == [0, 1]
    drawn = {f"{figure}.{kind}" for figure in (name, *BESIDE.get(name, ())) for kind in ("png", "svg")}
    kept = {f"{file}.csv" for file in files} or set(written)
    assert set(publish.written(tmp_path / name)) == {*kept, "table.md", "report.html", "study.json", *drawn}
    head, _, sentence, *_ = text.splitlines()
    assert head.endswith("preset smoke, 2 training seeds.")
    assert sentence == analysis.finding(found)
    assert sentence.endswith(".")
    assert text.endswith(f"Made by `icl-lab {name}`.\nand more")
    assert (tmp_path / name / "table.md").read_text() == text
