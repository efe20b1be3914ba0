"""Heads of trained models: the needle score, fading curves, the law of a free factor, and the trade-off."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import fading as analysis
from icl_lab.analyses import fadings, head_rows, heads, law, laws, needles, observe, saturation, saturations
from icl_lab.analyses.needle import retrieve
from icl_lab.comparison.ablations import ablations
from icl_lab.comparison.statistics import paired
from icl_lab.errors import BadValue, UnknownName
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2, ModelSpec, Reading
from icl_lab.papers import tradeoff
from icl_lab.rng import stream
from icl_lab.runs.measure import Subject, TestSpec, draw, measure
from icl_lab.runs.spec import resolve
from icl_lab.sweep import subject, sweep

CPU = torch.device("cpu")


def by_hand(sharp=1e3):
    """A model of ``needle:keys=1`` with one head whose weights are written down, so that its answer is known.

    It reads tokens that carry the one before them in their second half (``with_predecessors``): the question looks for
    the token that stands after the key, and answers with it.
    """
    task = tasks.build("needle:keys=1,alphabet=4")
    model = GPT2(
        ModelSpec(layers=1, heads=1, width=24, positions="none", mlp=False, norm=False),
        Reading(12, 4, 1, 16),
        "softmax",
        stream(0, "init"),
    )
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.read_in.weight[:12, :12] = torch.eye(12)
        attention = model.blocks[0].attention
        # The question (token 5) asks for the key (token 4) as what stood before: query 0 against key 0.
        attention.qkv.weight[0, 5] = sharp
        attention.qkv.weight[24 + 0, 6 + 4] = sharp
        attention.qkv.weight[48 : 48 + 4, :4] = torch.eye(4)  # the value is the token itself
        attention.project.weight[12:16, :4] = torch.eye(4)
        model.read_out.weight[:, 12:16] = torch.eye(4)
    return model.eval(), task


def with_predecessors(prompt):
    """Tokens (b t w) -> (b t 2w): each beside the one before it."""
    before = torch.cat((torch.zeros_like(prompt.tokens[:, :1]), prompt.tokens[:, :-1]), 1)
    return type(prompt)(torch.cat((prompt.tokens, before), 2), prompt.targets, prompt.scored)


def test_a_model_by_hand_finds_every_needle_and_its_head_has_score_1(monkeypatch):
    model, task = by_hand()
    plain = draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {})
    places = task.values(plain)
    monkeypatch.setattr(type(task), "values", lambda self, prompt: places[: len(prompt.tokens)])
    found = retrieve(model, task, with_predecessors(plain), CPU)
    assert found.scores.shape == (64, 1, 1)
    assert found.heads.item() == pytest.approx(1, abs=1e-6)
    assert found.outcomes.tolist() == [2] * 64
    assert found.best.min() > 1 - 1e-6


def test_a_model_that_looks_everywhere_alike_has_the_share_of_a_key_and_scores_chance():
    model, task = by_hand(sharp=0.0)
    plain = draw(task, 40, TestSpec(prompts=1024, axes={"length": [40.0]}), {})
    found = retrieve(model, task, with_predecessors(plain), CPU)
    assert found.heads.item() == pytest.approx(1 / 40, rel=1e-5)
    blind = Subject(lambda prompt: torch.zeros(*prompt.tokens.shape[:2], 4))
    test = TestSpec(prompts=2048, axes={"depth": [50.0], "length": [40.0]})
    error = Grid.of(measure({"blind": blind}, task, test).cells, ["depth", "length"]).at(metric="exact")
    assert error == pytest.approx(3 / 4, abs=0.03)


def test_trials_are_told_apart_by_how_they_end():
    task = tasks.build("needle:answer=2,alphabet=4")
    prompt = draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {}).take(3)
    outputs = torch.zeros(3, 40, 4)
    for row, rights in enumerate([(True, True), (True, False), (False, True)]):
        for place, right in zip((38, 39), rights, strict=True):
            wanted = int(prompt.targets[row, place])
            outputs[row, place, wanted if right else (wanted + 1) % 4] = 1

    class Said(torch.nn.Module):
        def bytes_a_prompt(self, t):
            return 1.0

        def forward(self, tokens, watch):
            watch(0, torch.full((3, 1, 40, 40), 0.01), torch.zeros(3, 1, 40, 40))
            return outputs

    found = retrieve(Said(), task, prompt, CPU)
    assert found.outcomes.tolist() == [2, 1, 0]
    assert found.best.tolist() == pytest.approx([2 / 39] * 3)  # two symbols of 39 keys, whatever the weights sum to


def test_effective_temperature_of_known_rules():
    z = torch.randn(5, 40, generator=stream(0, "z"), dtype=torch.float64)
    assert observe.temperature(z.softmax(-1), z).tolist() == pytest.approx([1] * 5)
    assert observe.temperature((2.5 * z).softmax(-1), z).tolist() == pytest.approx([2.5] * 5)
    sparse = torch.tensor([[0.0, 0.25, 0.75]])
    assert observe.temperature(sparse, torch.tensor([[9.0, 0.0, 2.0]])).item() == pytest.approx(math.log(3) / 2)
    assert math.isnan(observe.temperature(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 2.0]])).item())


def test_entropy_and_shares_of_signed_weights():
    weights = torch.tensor([[0.5, -0.5, 0.0], [2.0, 0.0, 0.0]])
    assert observe.shares(weights).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert observe.entropy(weights).tolist() == pytest.approx([math.log(2), 0.0])


@pytest.mark.parametrize(("attn", "fades"), [("average", -1.0), ("ssmax", 0.0)])
def test_slopes_of_a_rule_that_fades_and_of_one_that_does_not(attn, fades):
    """A mean fades as 1/n. With a gap above 1/s between the first token and the rest, SSMax keeps its focus."""
    task = tasks.build("needle:keys=1,alphabet=4")
    model = GPT2(
        ModelSpec(layers=1, heads=1, width=8, positions="none", mlp=False, norm=False),
        Reading(6, 4, 1, 64),
        attn,
        stream(0, "init"),
    )
    with torch.no_grad():
        for p in (q for name, q in model.named_parameters() if ".rule." not in name):
            p.zero_()
        model.read_in.weight[:6] = torch.eye(8)[:6, :6]
        model.blocks[0].attention.qkv.weight[0, 5] = 3.0  # the question asks for the key
        model.blocks[0].attention.qkv.weight[8, 4] = 3.0
    rows = analysis.fading(model.eval(), task, [32, 128, 512], 64, CPU)
    largest = [row["value"] for row in rows if row["metric"] == "largest"]
    assert analysis.slope([32, 128, 512], largest) == pytest.approx(fades, abs=0.02)
    spread = [row["value"] for row in rows if row["metric"] == "effective"]
    assert spread == pytest.approx([32, 128, 512] if attn == "average" else [1, 1, 1], rel=0.2)


@pytest.mark.parametrize(("true", "made"), [("log n", np.log), ("sqrt n", np.sqrt), ("n", np.positive)])
def test_the_law_that_made_the_numbers_is_found(true, made):
    n = np.arange(1, 65.0)
    noise = 0.01 * np.random.default_rng(0).normal(size=64)
    best, *others = law.fits(0.3 * made(n) + 2 + noise * made(n).std())
    assert best.law == true
    assert (best.slope, best.shift) == pytest.approx((0.3, 2), rel=0.05)
    assert others[0].aic > best.aic + 2
    assert best.at([4.0])[0] == pytest.approx(0.3 * made(4.0) + 2, rel=0.05)


def test_a_constant_is_a_law_and_costs_less():
    flat = law.fits(0.4 + 0.01 * np.random.default_rng(1).normal(size=64))
    assert flat[0].law == "constant"
    residual = 0.01 * np.random.default_rng(1).normal(size=64)
    rss = float(((residual - residual.mean()) ** 2).sum())
    assert flat[0].aic == pytest.approx(64 * math.log(rss / 64) + 4)
    with pytest.raises(BadValue, match="at least five values"):
        law.fits([1, 2, 3])


def trained(tiny, lab, attn="softmax", task="needle:alphabet=4,keys=2", seed=0, **more):
    spec = tiny(task, attn, "test.axes.length=32,48", "test.axes.depth=50", "train.steps=5", *more.get("set", ()))
    sweep(spec, seed, lab)
    return lab.store.run(spec, seed)


def test_a_search_of_finished_runs(tiny, lab):
    runs = {"ssmax": [trained(tiny, lab, "ssmax", seed=seed) for seed in (0, 1)], "softmax": [trained(tiny, lab)]}
    found = needles.search(runs, lab, 40, 10)
    assert found.rules == ["ssmax", "softmax"]
    assert len(found.ranked("ssmax")) == 2 * 2  # two seeds of two heads
    assert found.ranked("ssmax") == sorted(found.ranked("ssmax"), reverse=True)
    tops, ends = found.endings("ssmax")
    assert len(tops) == len(ends) == 20
    assert max(tops) == tops[0]
    text = needles.markdown(found, runs["ssmax"][0].spec, "icl-lab needle")
    assert "prompts of 40 tokens, trained up to 41" not in text
    assert "| `softmax` |" in text
    with pytest.raises(BadValue, match="task needle, got linear"):
        needles.check(tiny("linear"))
    with pytest.raises(BadValue, match="a needle needs prompts of 6 tokens or more"):
        needles.check(runs["ssmax"][0].spec, 4)


def test_a_swapped_rule_is_what_is_searched_and_followed(tiny, lab):
    run = trained(tiny, lab)
    other = run.swapped("average")
    found = needles.search({"own": [run], "other": [other]}, lab, 40, 10)
    assert found.ranked("other")[0] == pytest.approx(1 / 40, rel=1e-4)
    assert found.ranked("own")[0] != pytest.approx(1 / 40, rel=1e-4)


def test_what_heads_learned_is_listed_by_the_names_of_the_formula(tiny, lab):
    run = trained(tiny, lab, "ssmax:bias=yes")
    found = fadings.follow({"ssmax:bias=yes": [run]}, lab, [16, 32], 64)
    assert found.learned is not None
    assert set(found.learned.values("metric")) == {"s", "b"}
    assert len(found.learned.where(metric="s").frame) == 2
    assert len(found.lines("ssmax:bias=yes", "largest")) == 2
    assert "`ssmax:bias=yes` s | 0 |" in fadings.markdown(found, run.spec, "icl-lab fading")


def test_lengths_that_cannot_be_made_are_said_and_the_usual_ones_stop_in_time(tiny):
    learned = tiny("linear", "softmax", "model.positions=learned:rows=100", "train.curriculum.stop=12")
    assert max(fadings.lengths_of(learned, [])) == 48  # 96 tokens of 100
    with pytest.raises(BadValue, match="more than the 100 places"):
        fadings.lengths_of(learned, [20, 60])
    with pytest.raises(BadValue, match="at least two lengths"):
        fadings.lengths_of(learned, [20])


def test_the_law_of_finished_runs(tiny, lab):
    run = trained(tiny, lab, "ssmax-free")
    (found,) = laws.learn([run], lab)
    assert len(found.p) == run.spec.reading(tasks.build(run.spec.task)).train_tokens - 2
    assert found.s.shape == (1, 2)
    assert {fit.law for fit in found.fits} == set(law.LAWS)
    text, files = laws.publish([found], run.spec, lab.store.root / "law", "icl-lab law")
    assert "Printed" in text
    again = laws.fitted((lab.store.root / "law" / "p.csv").read_text())
    assert [fit.law for fit in again[0]] == [fit.law for fit in found.fits]
    with pytest.raises(BadValue, match="only ssmax-free"):
        laws.check(tiny("linear", "ssmax"))


def point(rule, needle, error, seeds=3):
    wobble = np.linspace(-0.01, 0.01, seeds) if seeds > 1 else np.zeros(1)
    return tradeoff.Point(
        rule,
        paired([0.0] * seeds, needle + wobble, "difference"),
        paired([0.0] * seeds, np.log(error) + wobble, "difference"),
    )


def test_the_tradeoff_as_a_table(tmp_path):
    points = [point("softmax", 0.5, 1.0), point("ssmax", 0.9, 4.0), point("ssa", 0.1, 0.25, seeds=1)]
    assert tradeoff.correlation(points) == pytest.approx(1)
    assert tradeoff.correlation([*points, point("best", 0.95, 0.1)]) == pytest.approx(-0.2)  # 1 - 6 * 12 / (4 * 15)
    text, files = tradeoff.publish(points, tmp_path, "lite", "linear", "icl-lab tradeoff")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["ssmax", "softmax", "ssa"]
    assert "0.9 [0.875, 0.925]" in rows[0]
    assert "| 0.1 | 0.25 | 1, 1 |" in rows[2]
    assert set(files) == {"tradeoff.csv", "table.md", "tradeoff.png", "tradeoff.svg"}


def test_the_tradeoff_reads_plain_runs_and_merges_studies(tmp_path, lab):
    with pytest.raises(BadValue, match=r"no rule has both: 0 have needle runs .* 0 have met a deviant"):
        tradeoff.gather(lab.store, "smoke")
    for name, rule, value in (("deviant-a", "softmax", 2.0), ("deviant-b", "ssa", 8.0)):
        rows = [
            {"attn": attn, "position": 0, "factor": factor, "metric": "mse", "stderr": 0, "count": 9}
            | {"value": value if factor > 1 else 0.001}
            for attn in (rule, "reference:zero")
            for factor in (1.0, 10.0, 100.0)
        ]
        who = {"task": "linear", "preset": "smoke", "spec": "0", "seed": 0}
        (lab.store.root / name).mkdir(parents=True)
        (lab.store.root / name / "deviant.csv").write_text(Grid.of(rows, ["position", "factor"], **who).csv())
    assert tradeoff.robustness(lab.store, "smoke", "linear") == {
        "softmax": [pytest.approx(2)],
        "ssa": [pytest.approx(8)],
    }
    assert tradeoff.robustness(lab.store, "lite", "linear") == {}
    plain, other = resolve("needle", "ssa", "smoke"), resolve("needle", "softmax", "smoke", ["train.rate=0.001"])
    for spec in (plain, other):  # only the plain one counts
        rows = [
            {
                "attn": spec.attn,
                "depth": d,
                "length": 512.0,
                "metric": "exact",
                "value": d / 100,
                "stderr": 0,
                "count": 9,
            }
            for d in (10.0, 50.0)
        ]
        run = lab.store.run(spec, 0)
        run.begin()
        grid = Grid.of(rows, ["depth", "length"], task="needle", preset="smoke", spec=spec.hash, seed=0)
        (run.folder / "grid.csv").write_text(grid.csv())
    assert tradeoff.retrieval(lab.store, "smoke") == {"ssa": [pytest.approx(0.7)]}
    (only,) = tradeoff.gather(lab.store, "smoke")
    assert (only.rule, only.needle.effect, only.deviant.effect) == (
        "ssa",
        pytest.approx(0.7),
        pytest.approx(math.log(8)),
    )


def test_a_run_by_its_folder(tiny, lab):
    run = trained(tiny, lab)
    assert lab.store.at(run.folder) == run
    with pytest.raises(UnknownName, match="seed-0"):
        lab.store.at(run.folder.parent / "seed-7")


def test_watched_rows_are_those_that_the_model_uses(tiny, lab):
    """The weights of the look, times the values, give what the layer adds."""
    run = trained(tiny, lab, "ssa")
    from icl_lab.sweep import load_or_train

    model = load_or_train(run, lab)
    task = tasks.build(run.spec.task)
    prompt = draw(task, 32, TestSpec(prompts=64, axes={"length": [32.0]}), {})
    (look, *_) = observe.looks(model, prompt, task.asking(32), CPU)
    whole = {}
    model(prompt.tokens, watch=lambda layer, w, z: whole.update({layer: (w, z)}))
    at = task.asking(32)
    n = len(look.weights)
    assert torch.allclose(look.weights[:, 0], whole[0][0][:n, :, at, : at + 1], atol=1e-6)
    assert torch.allclose(look.scores[:, 0], whole[0][1][:n, :, at, : at + 1], atol=1e-5)
    answered = subject(model, task, CPU).predict(prompt)[:n, task.answers]
    assert torch.allclose(look.outputs[:, task.answers], answered, atol=1e-5)


def test_what_a_watch_returns_is_used():
    model, task = by_hand()
    prompt = with_predecessors(draw(task, 40, TestSpec(prompts=64, axes={"length": [40.0]}), {}))
    plain = model(prompt.tokens)
    kept = {}
    assert torch.equal(model(prompt.tokens, lambda layer, w, z: kept.update({layer: w})), plain)
    assert torch.allclose(model(prompt.tokens, lambda layer, w, z: kept[layer]), plain, atol=1e-6)
    mean = model(prompt.tokens, lambda layer, w, z: torch.full_like(w, 1 / 40))
    assert torch.allclose(mean[:, -1], by_hand(sharp=0.0)[0](prompt.tokens)[:, -1], atol=1e-6)
    assert not torch.allclose(mean[:, -1], plain[:, -1], atol=0.1)


def test_norms_of_q_and_k_bound_the_scores():
    x = 1e4 * torch.randn(2, 9, 1, generator=stream(0, "x"))
    for qk_norm, bounded in ((True, True), (False, False)):
        spec = ModelSpec(layers=1, heads=2, width=8, positions="none", norm=False, qk_norm=qk_norm)
        model = GPT2(spec, Reading(1, 1, 2, 18), "softmax", stream(0, "init"))
        with torch.no_grad():
            model.blocks[0].attention.qkv.weight.mul_(50)
        seen = []
        model(x, lambda layer, w, z, seen=seen: seen.append(z.abs().max().item()))
        assert (seen[0] <= 4 / 2 + 1e-4) == bounded  # |q.k| / sqrt(d) <= d / sqrt(d) = 2 for d = 4


def test_calm_attention_heals_a_model_whose_attention_is_all_that_is_disturbed():
    """Two heads; only one token has a value: the answer hangs on where a head looks, and on nothing else."""
    task = tasks.build("linear")
    spec = ModelSpec(layers=1, heads=2, width=8, positions="learned:rows=64", mlp=False, norm=False)
    model = GPT2(spec, Reading(1, 1, 2, 64), "softmax", stream(0, "init"))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.read_in.weight[0, 0] = 1.0  # channel 0: the number
        model.positions.table[:, 1] = 1.0  # channel 1: a constant
        model.positions.table[3, 2] = 1.0  # channel 2: whether it is token 3
        qkv = model.blocks[0].attention.qkv.weight
        qkv[0, 1] = 1.0  # head 0: every query alike, keys are the numbers
        qkv[8 + 0, 0] = 2.0
        qkv[16 + 0, 2] = 1.0  # its value: only token 3 has one
        model.blocks[0].attention.project.weight[5, 0] = 1.0
        model.read_out.weight[0, 5] = 1.0
    calm = draw(task, 12, TestSpec(prompts=64, axes={"length": [12.0]}), {})
    base_error, spoiled, rows = saturation.patch(model, task, calm, 0, 100.0, CPU)
    healed = {(row["layer"], row["head"]): row["value"] for row in rows}
    assert spoiled != base_error
    assert healed[0, 0] == pytest.approx(1, abs=1e-3)  # the head that was drawn away
    assert healed[0, 1] == pytest.approx(0, abs=1e-6)  # the other one changed nothing
    assert healed[0, -1] == healed[-1, -1] == pytest.approx(1, abs=1e-3)


def test_saturation_of_a_head_that_looks_for_large_numbers():
    """Scores are the numbers themselves: the weight on the deviant is softmax of one gap, as the theory says."""
    task = tasks.build("linear")
    spec = ModelSpec(layers=1, heads=1, width=4, positions="none", mlp=False, norm=False)
    model = GPT2(spec, Reading(1, 1, 2, 24), "softmax", stream(0, "init"))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.read_in.weight[0, 0] = 1.0
        model.read_in.bias[1] = 2.0  # sqrt of the head's width: scores are the numbers
        model.blocks[0].attention.qkv.weight[0, 1] = 1.0
        model.blocks[0].attention.qkv.weight[4, 0] = 1.0
    calm = draw(task, 12, TestSpec(prompts=64, axes={"length": [12.0]}), {})
    calm.tokens[:, 0] = 0.05  # so that it stands out only when it has grown
    calm = type(calm)(calm.tokens, calm.targets, calm.scored)
    factors = [1.0, 20.0, 1000.0]
    rows, errors = saturation.saturation(model, task, calm, 0, factors, CPU)
    found = {(row["metric"], row["factor"]): row["value"] for row in rows}
    weights = calm.tokens[:, :23, 0].double()
    by_hand_1 = weights.softmax(1).amax(1).mean().item()
    assert found["largest", 1.0] == pytest.approx(by_hand_1, rel=1e-4)
    assert found["distance", 1.0] == pytest.approx(0, abs=1e-7)
    assert found["deviant", 1000.0] == pytest.approx(1, abs=1e-3)
    assert found["effective", 1000.0] == pytest.approx(1, abs=0.05)
    assert 0.9 < found["distance", 1000.0] <= 1 + 1e-9
    assert 0.3 < found["theory", 1000.0] <= 1
    assert {row["metric"] for row in errors} == {"last", "mse"}
    assert found["largest", 1000.0] > 0.9


def test_a_saturation_point_needs_a_climb_from_below():
    assert saturation.point([1, 10, 100], [0.2, 0.91, 0.99]) == 10
    assert math.isnan(saturation.point([1, 10, 100], [0.6, 0.95, 0.99]))  # it looked at one key from the start
    assert math.isnan(saturation.point([1, 10, 100], [0.2, 0.5, 0.9]))


def test_saturation_of_finished_runs(tiny, lab):
    runs = {}
    for attn in ("softmax", "ssa"):
        spec = tiny("every:balance=half", attn, "train.steps=5")
        sweep(spec, 0, lab)
        runs[attn] = [lab.store.run(spec, 0)]
    found = saturations.stretch(runs, lab, 0, [1.0, 100.0], 64)
    assert found.rules == ["softmax", "ssa"]
    assert len(found.points("ssa")) == 2
    text, files = saturations.publish(found, runs["ssa"][0].spec, lab.store.root / "s", "icl-lab saturation")
    assert set(files) == {
        "heads.csv", "errors.csv", "patches.csv", "table.md", "saturation.png", "saturation.svg",
    }  # fmt: skip
    with pytest.raises(BadValue, match="no number to be stretched"):
        saturations.check(resolve("needle", "softmax"), 0)
    with pytest.raises(BadValue, match="no heads to saturate"):
        saturations.check(tiny("linear", "softmax", "model.attention=no"), 0)
    with pytest.raises(BadValue, match="at an index from 0 to"):
        saturations.check(tiny("linear"), 99)


def test_ablations_leave_out_one_part_each(tiny):
    whole = resolve("linear", "ssa", "lite", ["train.steps=7"])
    made = ablations(whole, ("train.steps=7",))
    assert made["whole"] == whole
    assert len({spec.hash for spec in made.values()}) == len(made) == 7
    assert all(spec.train.steps == 7 for spec in made.values())
    assert not made["attention only"].model.mlp
    assert made["one layer less"].model.layers == 1
    assert set(ablations(tiny("linear"))) >= {"whole", "MLP only", "one head"}
    assert "one layer less" not in ablations(tiny("linear"))  # it has but one
    with pytest.raises(BadValue, match="whole model"):
        ablations(tiny("linear", "softmax", "model.mlp=no"))


def test_an_mlp_alone_sees_one_token_and_so_cannot_learn_in_context():
    """Its answers hang on the number that is asked for alone: the examples before it change nothing."""
    spec = ModelSpec(layers=2, heads=2, width=16, attention=False)
    model = GPT2(spec, Reading(1, 1, 2, 24), "softmax", stream(0, "init"))
    x = torch.randn(2, 12, 1, generator=stream(0, "x"), requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[:, 8].sum(), x)
    assert gradient[:, 8].abs().min() > 0
    assert gradient[:, [*range(8), *range(9, 12)]].abs().max() == 0


def test_statistics_of_a_row_by_hand():
    weights = torch.tensor([0.5, 0.1, 0.2, 0.0, 0.2], dtype=torch.float64)
    found = {name: value.item() for name, value in head_rows.statistics(weights, roles=2).items()}
    entropy = -(0.5 * math.log(0.5) + 0.1 * math.log(0.1) + 2 * 0.2 * math.log(0.2))
    assert found == pytest.approx(
        {
            "largest": 0.5,
            "top-2": 0.7,
            "top-5": 1.0,
            "entropy": entropy / math.log(5),
            "effective": math.exp(entropy),
            "first": 0.5,
            "itself": 0.2,
            "previous": 0.0,
            "numbers": 0.9,
            "answers": 0.1,
        }
    )
    assert "numbers" not in head_rows.statistics(weights, roles=1)
    assert head_rows.statistics(torch.ones(1), roles=1)["entropy"].item() == 0


def test_habits_of_finished_runs(tiny, lab):
    spec = tiny("linear", "ssa", "train.steps=5", "test.axes.sigma_f=1,3")
    sweep(spec, 0, lab)
    found = heads.gather({"ssa": [lab.store.run(spec, 0)]}, lab, 64)
    assert set(found.grid.axes) == {"sigma_f", "sigma_x", "length", "layer", "head", "index"}
    one = {"metric": "first", "sigma_f": 3, "sigma_x": 1, "length": 12, "layer": 0, "head": 0}
    assert found.grid.at(index=1, **one) == 1  # the first question sees one token only
    sums = [found.grid.at(index=12, **{**one, "metric": part}) for part in ("numbers", "answers")]
    assert sum(sums) == pytest.approx(1, abs=1e-6)
    assert "sigma_f 3" in heads.markdown(found, spec, "icl-lab heads")
    with pytest.raises(BadValue, match="no heads to look at"):
        heads.check(tiny("linear", "softmax", "model.attention=no"))


def test_what_rules_learn_stands_in_the_history(tiny, lab):
    spec = tiny("linear", "softmax", "train.switch_step=52", "train.switch_to=ssmax:bias=yes")
    sweep(spec, 0, lab)
    before, after = lab.store.run(spec, 0).history()
    assert set(before) == {"step", "loss", "length", "rate"}
    assert set(after) - set(before) == {"s 0.0", "s 0.1", "b 0.0", "b 0.1"}
    assert after["s 0.0"] != 1
    assert abs(after["s 0.0"] - 1) < 0.5


def test_claims_about_saturation_are_read_from_its_files(tmp_path):
    from icl_lab.papers import readers
    from icl_lab.papers.experiment import Quantity

    who = {"task": "linear", "preset": "lite", "spec": "0", "seed": 0, "attn": "softmax"}
    cell = {"stderr": 0, "count": 9}
    rows = [
        {"layer": 0, "head": h, "factor": f, "metric": "deviant", "value": f / 1000 + h, **cell}
        for h in (0, 1)
        for f in (1.0, 100.0)
    ]
    axes = ["layer", "head", "factor"]
    (tmp_path / "heads.csv").write_text(Grid.of(rows, axes, **who).csv())
    mse = [{"factor": f, "metric": "mse", "value": f, **cell} for f in (1.0, 100.0)]
    (tmp_path / "errors.csv").write_text(Grid.of(mse, ["factor"], **who).csv())
    assert readers._from_saturation(tmp_path)[1] == []  # a file is missing
    patches = [
        {"layer": layer, "head": layer, "factor": 100.0, "metric": "recovered", "value": value, **cell}
        for layer, value in ((-1, 0.25), (0, 9.0))
    ]
    (tmp_path / "patches.csv").write_text(Grid.of(patches, axes, **who).csv())
    read, seeds = readers._from_saturation(tmp_path)
    assert seeds == [0]
    where = Quantity(of="softmax", cells={"factor": [100.0]})
    assert read(where, "deviant", 0) == pytest.approx(0.6)  # the mean of two heads
    assert read(where, "mse", 0) == 100
    assert read(where, "recovered", 0) == 0.25
    assert read(Quantity(of="reference:nothing"), "recovered", 0) == 0
    patches[0]["value"] = math.nan
    (tmp_path / "patches.csv").write_text(Grid.of(patches, axes, **who).csv())
    with pytest.raises(KeyError, match="changed no answer"):
        readers._from_saturation(tmp_path)[0](where, "recovered", 0)


def test_claims_about_bounds_are_read_from_its_file(tmp_path):
    from icl_lab.papers import readers
    from icl_lab.papers.experiment import Quantity

    who = {"task": "linear", "preset": "lite", "spec": "0", "seed": 0, "attn": "ssa"}
    rows = [
        {"slope": a, "intercept": 0, "scale": c, "side": side, "metric": metric, "value": a + side + c, "count": 16}
        | {"stderr": 0}
        for a in (9.0, 10.0)
        for c in (1.0, 0.3)
        for side in (-1.0, 1.0)
        for metric in ("clip", "onset")
    ]
    assert readers._from_boundary(tmp_path)[1] == []
    grid = Grid.of(rows, ["slope", "intercept", "scale", "side"], **who)
    (tmp_path / "boundary.csv").write_text(grid.csv())
    read, seeds = readers._from_boundary(tmp_path)
    assert seeds == [0]
    assert read(Quantity(of="ssa", cells={"slope": [9.0, 10.0]}), "", 0) == pytest.approx(10.5)  # both sides, scale 1
