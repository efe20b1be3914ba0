"""What normalizers do to scores and what they cost: values by hand, nothing left out, pictures from CSV alone."""

import json
import math
import subprocess
import sys

import pytest
import torch

from docs import tables
from icl_lab import normalizers
from icl_lab.analyses.profiles import costs, families, functions
from icl_lab.base import published
from icl_lab.base.errors import LabError
from icl_lab.base.grid import Grid
from icl_lab.cli import catalogue
from icl_lab.figures import rules
from icl_lab.figures.base import encode
from icl_lab.normalizers.base import causal


@pytest.mark.parametrize("n", [2, 80, 4096, 16384])
def test_fading_by_hand(n):
    grid = functions.fading([n])
    softmax = 1 / (1 + (n - 1) * math.exp(-5))
    ssmax = 1 / (1 + (n - 1) * n ** (-0.43 * 5))
    assert grid.at(attn="softmax", metric="share", keys=n) == pytest.approx(softmax, rel=1e-9)
    # s is a parameter, kept in single precision.
    assert grid.at(attn="ssmax:s=0.43,learn=no", metric="share", keys=n) == pytest.approx(ssmax, rel=1e-6)


def test_focus_by_hand():
    grid = functions.focus([16], steps=9)
    assert grid.values("z_max") == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert grid.at(attn="softmax", metric="share", keys=16, z_max=3) == pytest.approx(1 / (1 + 15 * math.exp(-3)))
    # At z_max = 0 no key is before another.
    assert grid.at(attn="ssmax:s=0.43,learn=no", metric="share", keys=16, z_max=0) == pytest.approx(1 / 16)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ssa:n=2", {3: 16, -3: 1 / 16}),
        ("ssa:n=1.5", {3: 8, -3: 1 / 8}),
        ("ssa:n=1.1", {1: 2**1.1, 0: 1}),
        ("exp", {2: math.e**2, -5: math.exp(-5)}),
    ],
)
def test_the_base_function_by_hand(name, values):
    grid = functions.base(points=11)
    assert {x: grid.at(attn=name, x=x) for x in values} == pytest.approx(values, rel=1e-5)


def test_every_rule_is_asked():
    length, gap = functions.against_length([2, 3]), functions.against_gap([0, 5])
    for grid in (length, gap):
        assert {rule.split(":")[0] for rule in grid.values("attn")} >= set(normalizers.names()) - {"forget"}
        assert {"lssa+reweight:p=3", "lssa+reweight:p=15"} <= set(grid.values("attn"))
        assert grid.frame["value"].map(math.isfinite).all()


def test_a_rule_in_no_family_comes_last():
    chosen = families.rules(["softmax", "new"])
    assert chosen[-1] == "new"
    assert chosen.count("softmax") == 1


@pytest.mark.parametrize(
    ("rule", "gap", "share", "mass"),
    [
        ("sigmoid", 4, 1 / (1 + 79 * math.exp(-2)), (1 + 79 * math.exp(-2)) / (1 + math.exp(-2))),
        ("ssa:n=2", 4, 1 / (1 + 79 / 81), 1),  # (1 + 2)^2 over (1 + 2)^-2
        ("raw", 4, 1 / 80, 160),
        ("average", 16, 1 / 80, 1),
        ("sparsemax", 0.5, 0.5 + 0.5 / 80, 1),
        ("softpick", 4, 1, (math.exp(2) - 1) / (math.exp(2) - 1 + 79 * (1 - math.exp(-2)))),
        ("relu", 4, 1, 2 / 82),
        ("relu", 0, 0, 0),
        ("inverse", 4, 1 / (1 + 79 * math.exp(-4)), 1),
        ("soft-avg", 4, (1 / (1 + 79 * math.exp(-4)) + 1 / 80) / 2, 1),  # the mean of two kinds of heads
    ],
)
def test_share_and_mass_by_hand(rule, gap, share, mass):
    grid = functions.against_gap([gap], [rule])
    assert grid.at(metric="share") == pytest.approx(share, rel=1e-5)
    assert grid.at(metric="mass") == pytest.approx(mass, rel=1e-5)


def test_normalizers_that_read_tokens_are_left_out_or_refused():
    assert functions.left_out() == ["forget"]
    with pytest.raises(LabError, match="'forget' reads the tokens of a model"):
        functions.against_gap([0], ["forget"])
    gated, plain = (functions.against_gap([5], [rule]).at(metric="share") for rule in ("softmax+gated", "softmax"))
    assert gated == pytest.approx(plain)


@pytest.mark.parametrize("choice", [rule for rule in families.rules(normalizers.names()) if rule != "forget"])
def test_the_last_query_alone_gets_the_row_it_gets_among_others(choice):
    z = torch.linspace(-3, 4, 100, dtype=torch.float64)
    rule = normalizers.build(choice, heads=8, head_dim=64, train_tokens=82).double()
    q, k = functions._vectors(z)
    with torch.no_grad():
        row = rule.weights(q, k, causal(100))[0, :, -1]
    torch.testing.assert_close(functions._last_row(choice, z), row)


def test_vectors_have_the_scores_and_the_lengths():
    z = torch.tensor([-8.0, -2.0, 0.0, 8.0], dtype=torch.float64)
    q, k = functions._vectors(z)
    torch.testing.assert_close((q[0, 0, -1] * k[0, 0]).sum(-1) / 8, z)
    torch.testing.assert_close(k.norm(dim=-1), torch.full_like(k[..., 0], 8))


def test_a_rule_that_needs_all_rows_ends_where_they_fit():
    grid = functions.against_length([64, 2048], ["softmax", "sima", "selective", "stick-breaking"])
    for rule in ("softmax", "stick-breaking"):  # the latter knows where its query stands by what it sees
        assert grid.where(attn=rule).values("keys") == [64, 2048]
    assert grid.where(attn=["sima", "selective"]).values("keys") == [64]


def test_operations_follow_the_printed_formulas():
    counted = {name: count(4) for name, count in costs.OPERATIONS.items()}
    assert counted == {"Softmax": 26, "SSMax": 36, "Sigmoid": 20, "SimA": 6}
    grid = costs.operations()
    for row in published.load("poster_flops").rows:
        name = row["activation"].text
        assert grid.at(attn=name, metric="gflop") == pytest.approx(row["gflops_recomputed_n32000"].number, abs=6e-5)
        assert grid.at(attn=name, metric="gflop-printed") == row["gflops_at_32k_printed"].number
        assert 9.9 < grid.at(attn=name, metric="printed-over-formula") < 10.1
    assert any("ten times" in line for line in costs.counts(grid))


def test_printed_times_are_ratios_to_their_softmax():
    grid = costs.printed_times()
    assert set(grid.where(attn="poster:vanilla").frame["value"]) == {1.0}
    assert grid.at(attn="poster:sima", tokens=64) > 0


def test_peak_counts_what_is_alive_at_once():
    x = torch.zeros(1000)  # 4,000 bytes that were there before

    def work():
        y = x + 1
        z = y + 1
        del y
        return z.view(10, 100) + 1

    assert costs.peak(work) == 8000
    assert costs.peak(lambda: x.view(10, 100).add_(1)) == 0
    assert costs.peak(lambda: [x + 1, x + 2, x + 3]) == 12000


@pytest.mark.slow
def test_costs_on_tiny_prompts():
    ticks = []
    grid = costs.measure([8, 16], ["softmax", "ssa", "four-functions"], pairs=2, tick=lambda *news: ticks.append(news))
    assert grid.axes == ["tokens"]
    # Memory is counted, so it has no noise; a ratio of times has, even of softmax to itself.
    memory = grid.where(attn="softmax", metric=["both-memory", "forward-memory"])
    assert memory.frame["value"].tolist() == [1] * 4
    for tokens in (8, 16):
        for metric in ("forward", "both"):
            times = [grid.at(attn="ssa", metric=metric + end, tokens=tokens) for end in ("-low", "", "-high")]
            assert 0 < times[0] <= times[1] <= times[2]
    forward, both = (grid.at(attn="ssa", metric=f"{which}-bytes", tokens=16) for which in ("forward", "both"))
    assert forward < both == costs.attention_bytes("ssa", 16)
    assert ticks[-1][1] == ticks[-1][2] == 6
    lines = "\n".join(costs.table(grid))
    assert "four-functions" in lines
    assert "range at 16" in lines
    assert encode(rules.costs(grid), "png")[:4] == b"\x89PNG"


REDRAW = """
import sys
from pathlib import Path
from icl_lab.figures.base import encode
from icl_lab.figures.rules import functions
from icl_lab.analyses.profiles.families import FAMILIES
from icl_lab.base.grid import Grid
grids = {path.stem: Grid.read(path) for path in Path(sys.argv[1]).glob("*.csv")}
for name, figure in functions(grids, FAMILIES).items():
    same = encode(figure, "png") == (Path(sys.argv[1]) / f"{name}.png").read_bytes()
    print(name, same)
print("torch" in sys.modules)
"""


@pytest.mark.exhaustive
def test_functions_writes_figures_that_redraw_without_torch(run, monkeypatch, tmp_path):
    monkeypatch.setattr(functions, "SQUARE", 256)  # the rest is the real thing
    out = run.ok("functions", "--results", str(tmp_path))[0].splitlines()
    folder = tmp_path / "functions"
    assert out[-2].startswith(f"wrote {folder}")
    assert out[-1].startswith("next: icl-lab ")
    grids = {"fading", "focus", "ssa-base", "rules-length", "rules-gap"}
    drawn = {"fading", "focus", "ssa-base", "rules", "rules-by-family"}
    assert {path.stem for path in folder.glob("*.csv")} == grids
    assert {path.stem for path in folder.glob("*.png")} == {path.stem for path in folder.glob("*.svg")} == drawn
    again = subprocess.run([sys.executable, "-c", REDRAW, str(folder)], capture_output=True, text=True, check=True)
    assert sorted(again.stdout.split("\n")[:-2]) == sorted(f"{name} True" for name in drawn)
    assert again.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
def test_costs_writes_a_table(run, tmp_path):
    words = ["--lengths", "8,16", "--attn", "softmax", "--attn", "sima", "--pairs", "1", "--device", "cpu"]
    out = run.ok("costs", *words, "--results", str(tmp_path))[0].splitlines()
    folder = tmp_path / "costs"
    assert any(line.startswith("Softmax") and "15.3" in line for line in out)
    assert sum(line.startswith("sima ") for line in out) == 3
    assert out[-2].startswith(f"wrote {folder}")
    assert out[-1].startswith("next: icl-lab ")
    assert set(Grid.read(folder / "measured.csv").values("attn")) == {"softmax", "sima"}
    assert json.loads((folder / "env.json").read_text())["threads"] == torch.get_num_threads()
    assert (folder / "measured.svg").exists()


@pytest.mark.parametrize(("words", "said"), [(["--lengths", "0"], "whole numbers"), (["--attn", "sofmax"], "softmax")])
def test_costs_refuses_what_it_cannot_do(run, tmp_path, words, said):
    assert said in run.refused("costs", *words, "--results", str(tmp_path))[1]
    assert not list(tmp_path.iterdir())


def test_the_index_counts_parameters_and_names_traits():
    text = "\n".join(catalogue.listing("normalizers")).split("\n")
    said = {line.split(":")[0]: text[at + 3] for at, line in enumerate(text) if not line.startswith(" ")}
    assert said["softmax"] == "    learned a head: 0; sums to 1, never negative, prefix-consistent"
    assert said["ssa"].startswith("    learned a head: 2; sums to 1")
    assert "learned a head: 2, and 82 shared by all layers;" in said["ssmax-free"]
    assert said["stick-breaking"].endswith("prefix-consistent, ordered")
    assert said["raw"].endswith("; prefix-consistent")
    table = tables.fill("<!-- index normalizers -->\n<!-- end -->")
    assert "| name | what it is | formula | learned | traits | source (arXiv) |" in table
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert "Traits: " in table
