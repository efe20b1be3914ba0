"""Critical temperatures of made-up scores, by hand and by theory, and what is asked of trained models."""

import math

import pytest
import torch

from icl_lab import normalizers
from icl_lab.analyses import runner
from icl_lab.analyses.frame import StoredGrids
from icl_lab.analyses.heads import GapCounting, critical_temperature, powers
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import softmax
from icl_lab.runs.spec import resolve

LENGTHS = (64, 256, 1024, 4096)


def of_lengths(critical):
    """A grid of one head with a critical temperature at each length."""
    rows = [
        {"layer": 0, "head": 0, "length": n, "keys": n, "metric": "critical", "value": value, "stderr": 0.0, "count": 1}
        for n, value in zip(LENGTHS, critical, strict=True)
    ]
    return Grid.of(rows, ["layer", "head", "length", "keys"], task="t", attn="softmax", preset="p", spec="s", seed=0)


def test_the_critical_temperature_by_hand():
    scores = torch.tensor([1.0, 4.0, 2.5, -1.0, 3.0])  # gaps in falling order: 1, 1.5, 3, 5 of ranks 2 to 5
    wanted = min(1 / math.log(2), 1.5 / math.log(3), 3 / math.log(4), 5 / math.log(5))
    assert critical_temperature(scores).item() == pytest.approx(wanted)
    assert critical_temperature(torch.tensor([[2.0, 2.0, 0.0], [5.0, 0.0, 0.0]])).tolist() == pytest.approx(
        [0.0, 5 / math.log(3)]
    )


def test_below_it_attention_is_outweighed_and_above_it_not():
    """n keys at one distance: at the critical inverse temperature they weigh as much together as the largest."""
    z = torch.zeros(1, 1, 1, 101, dtype=torch.float64)
    z[..., 7] = 3.0
    seen = torch.ones(1, 101, dtype=torch.bool)
    beta = 1 / critical_temperature(z).item()
    largest = [softmax(beta * factor * z, seen).max().item() for factor in (0.5, 1, 2)]
    assert largest[0] < 0.12
    assert largest[1] == pytest.approx(0.5, abs=0.01)
    assert largest[2] > 0.98


@pytest.mark.parametrize(
    ("draw", "power", "within"),
    [
        # 1 / T is log(n) / gap, sqrt(2 log n) / sigma, and for scores of exponential tails a constant.
        (lambda n, rng: torch.cat((torch.zeros(400, n - 1), torch.full((400, 1), 4.0)), 1), 1.0, 1e-6),
        (lambda n, rng: torch.randn(400, n, generator=rng, dtype=torch.float64), 0.5, 0.15),
    ],
    ids=["one above a flat rest", "Gaussian"],
)
def test_powers_of_log_n_are_those_of_theory(draw, power, within):
    critical = [critical_temperature(draw(n, stream(0, "gaps", n))).median().item() for n in LENGTHS]
    assert powers(of_lengths(critical)) == pytest.approx([power], abs=within)


def test_no_power_where_two_scores_are_equal():
    equal = of_lengths([0.5, 0.0, 0.5, 0.5])
    assert math.isnan(powers(equal)[0])
    with pytest.raises(KeyError, match="no head has a 'power' there"):
        GapCounting().value(StoredGrids({"gaps": equal}), "softmax", {}, "", 0)


@pytest.mark.slow
def test_trained_models_are_asked(runs, lab, tmp_path):
    settings = ("test.axes.length=32,48", "test.axes.depth=50")
    groups = runs("needle:alphabet=4,keys=2", "softmax", "ssmax:learn=no", settings=settings)
    analysis = GapCounting(lengths=(32, 16), prompts=64)
    found = runner.ask(analysis, groups, lab)
    assert found["gaps"].values("length") == [16, 32]
    assert set(found["gaps"].values("metric")) == {"critical", "reached", "near"}
    for rule, factor in (("softmax", 1.0), ("ssmax:learn=no", math.log(found["gaps"].values("keys")[-1]))):
        last = found["gaps"].where(attn=rule, length=32, layer=0, head=0)
        reached, critical = (last.where(metric=metric).frame["value"].item() for metric in ("reached", "critical"))
        assert reached == pytest.approx(factor * critical, rel=1e-3)
    assert "| `softmax` |" in "\n".join(analysis.table(found))
    assert list(analysis.figures(found, "a title")) == ["gaps"]
    (tmp_path / "gaps.csv").write_text(analysis.files(found)["gaps.csv"])
    stored = analysis.read(tmp_path)
    power = analysis.value(stored, "softmax", {}, "", 0)
    assert f"{power:.2f} with softmax" in analysis.finding(found)
    assert analysis.value(stored, "softmax", {"length": [32]}, "near", 0) >= 1
    with pytest.raises(KeyError, match="a power needs at least two lengths"):
        analysis.value(stored, "softmax", {"length": [32]}, "power", 0)


def test_senseless_questions_are_refused():
    with pytest.raises(BadValue, match="at least two lengths"):
        GapCounting(lengths=(20,)).check(resolve("linear", "softmax", "smoke", ()))
    with pytest.raises(BadValue, match="has no heads to follow"):
        GapCounting().check(resolve("linear", "softmax", "smoke", ("model.attention=no",)))


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_the_normalizer_of_a_power_follows_it(power):
    rule = normalizers.build(f"log-n:power={power:g}", heads=1, head_dim=2, train_tokens=8)
    n = torch.tensor([4.0, 8.0, 64.0])
    assert rule.scale(n).tolist() == pytest.approx([1.0, 1.0, 2.0**power])
