"""One number grows: what heads do, and the share of the error that activation patching recovers."""

import math
import re
from dataclasses import replace
from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import frame, publish, runner
from icl_lab.analyses.deviant import Deviant
from icl_lab.analyses.frame import Findings, StoredGrids
from icl_lab.analyses.saturation import Saturation
from icl_lab.analyses.saturation.measure import disturb, patch
from icl_lab.analyses.saturation.numbers import heads_named, saturating, saturation_point
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.pipeline import load_or_train
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import resolve

CPU = torch.device("cpu")
LINEAR = tasks.build("linear")
WHO = {"task": "linear", "preset": "lite", "spec": "0", "seed": 0, "attn": "softmax"}


def model_without_weights(**fields):
    """One layer without MLP and norm, every parameter at 0: tests write down what it is to do."""
    spec = ModelSpec(layers=1, mlp=False, norm=False, **fields)
    model = GPT2(spec, TokenSpec(1, 1, 2, 64), "softmax", stream(0, "init"))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


def test_patching_recovers_an_error_that_only_attention_caused():
    """Two heads; only one token has a value, so that the answer depends on nothing but where head 0 looks."""
    model = model_without_weights(heads=2, width=8, positions="learned:rows=64")
    with torch.no_grad():
        model.read_in.weight[0, 0] = 1.0  # channel 0: the number
        model.positions.table[:, 1] = 1.0  # channel 1: a constant
        model.positions.table[3, 2] = 1.0  # channel 2: whether it is token 3
        qkv = model.blocks[0].attention.qkv.weight
        qkv[0, 1] = 1.0  # head 0: every query alike, keys are the numbers
        qkv[8 + 0, 0] = 2.0
        qkv[16 + 0, 2] = 1.0  # its value: only token 3 has one
        model.blocks[0].attention.project.weight[5, 0] = 1.0
        model.read_out.weight[0, 5] = 1.0
    undisturbed = draw(LINEAR, 12, TestSpec(prompts=64, axes={"length": [12.0]}), {})
    rows, left = patch(model, LINEAR, undisturbed, 0, 100.0)
    shares = {(row["layer"], row["head"]): row["value"] for row in rows}
    _, errors = disturb(model, LINEAR, undisturbed, 0, [1.0, 100.0], CPU)
    assert errors[100.0]["mse"].mean() > errors[1.0]["mse"].mean()
    torch.testing.assert_close(left, errors[1.0]["mse"], rtol=1e-2, atol=1e-3)
    assert shares[0, 0] == pytest.approx(1, abs=1e-3)  # the head that was drawn away
    assert shares[0, 1] == pytest.approx(0, abs=1e-6)  # the other one changed nothing
    assert shares[0, -1] == shares[-1, -1] == pytest.approx(1, abs=1e-3)


def test_head_that_looks_for_large_numbers_by_hand():
    """Scores are the numbers themselves: the weight on the deviant is softmax of one gap, as in theory."""
    model = model_without_weights(heads=1, width=4, positions="none")
    with torch.no_grad():
        model.read_in.weight[0, 0] = 1.0
        model.read_in.bias[1] = 2.0  # sqrt of the head's width: scores are the numbers
        model.blocks[0].attention.qkv.weight[0, 1] = 1.0
        model.blocks[0].attention.qkv.weight[4, 0] = 1.0
    undisturbed = draw(LINEAR, 12, TestSpec(prompts=64, axes={"length": [12.0]}), {})
    undisturbed.tokens[:, 0] = 0.05  # so that it stands out only when it has grown
    rows, _ = disturb(model, LINEAR, undisturbed, 0, [1.0, 1000.0], CPU)
    found = {(row["metric"], row["factor"]): row["value"] for row in rows}
    scores = undisturbed.tokens[:, :23, 0].double()
    weights = scores.softmax(1)
    assert found["largest", 1.0] == pytest.approx(weights.amax(1).mean().item(), rel=1e-4)
    assert found["deviant", 1.0] == pytest.approx(weights[:, :2].sum(1).mean().item(), rel=1e-4)
    assert found["distance", 1.0] == pytest.approx(0, abs=1e-7)
    assert found["deviant", 1000.0] == pytest.approx(1, abs=1e-3)
    assert found["effective", 1000.0] == pytest.approx(1, abs=0.05)
    assert 0.9 < found["distance", 1000.0] <= 1 + 1e-9
    leads = scores[:, :2].amax(1) - scores[:, 2:].mean(1)
    expected = (leads.exp() / (leads.exp() + 22)).mean().item()  # one key that far above 22 equal ones
    assert found["theory", 1.0] == pytest.approx(expected, rel=1e-4)
    assert expected < 0.3 < found["theory", 1000.0] <= 1
    assert found["largest", 1000.0] > 0.9


def test_saturation_point_needs_a_rise_from_below_a_half():
    assert saturation_point([1, 10, 100], [0.2, 0.91, 0.99]) == 10
    assert math.isnan(saturation_point([1, 10, 100], [0.6, 0.95, 0.99]))  # attends to one key from the start
    assert math.isnan(saturation_point([1, 10, 100], [0.2, 0.5, 0.9]))


def test_saturation_is_counted_from_the_undisturbed_prompt_on():
    """A number that shrinks may change the largest weight, too: a head saturates only where it grows."""
    rows = [
        {"layer": 0, "head": head, "factor": factor, "metric": "largest", "value": value, "stderr": 0, "count": 9}
        for head, values in ((0, (0.95, 0.2, 0.92)), (1, (0.2, 0.95, 0.95)))
        for factor, value in zip((0.1, 1.0, 100.0), values, strict=True)
    ]
    stored = StoredGrids({"heads": Grid.of(rows, ["layer", "head", "factor"], **WHO)})
    assert saturating(stored, "softmax") == ([100.0], 2)


@pytest.mark.slow
def test_table_and_figure_of_finished_runs(runs, lab):
    groups = runs("every:balance=half", "softmax", "ssa")
    analysis = Saturation(factors=(100.0,), prompts=64)
    found = runner.ask(analysis, groups, lab)
    assert found["heads"].values("factor") == [1.0, 100.0]  # the undisturbed prompt is always among them
    assert found["patches"].values("factor") == [100.0]
    assert saturating(found, "ssa")[1] == 2
    text = "\n".join(analysis.table(found))
    assert "| error (last) | x1 | x100 |" in text
    assert "| `ssa` | 0 of 2 | none in range |" in text
    assert list(analysis.figures(found, "a title")) == ["saturation", "heads", "stream"]
    saturate = "Up to a factor of 100, 0 of 2 heads with softmax and 0 of 2 heads with ssa saturate."
    assert analysis.finding(found).startswith(saturate)
    # Of seven seeds the first are drawn, a column a normalizer; no cell holds a number like 2.5e-07.
    seeds = {name: [Grid(grid.frame.assign(seed=seed)) for seed in range(7)] for name, grid in found.grids.items()}
    more = replace(found, grids={name: Grid.join(grids) for name, grids in seeds.items()})
    figure = analysis.figures(more, "a title")["heads"]
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in maps[:2]] == ["softmax, seed 0", "ssa, seed 0"]
    assert len(maps) == 2 * 5
    assert figure.get_suptitle() == "a title (5 of 7 seeds)"
    written = [text.get_text() for axes in maps for text in axes.texts]
    assert written
    assert all(re.fullmatch(r"[01]\.\d\d", text) for text in written)
    assert analysis.figures(found, "a title")["heads"].get_suptitle() == "a title"


@pytest.mark.parametrize(
    ("task", "metrics"),
    [("linear", ("mse", "last", "recovered")), ("every:balance=half", ("last", "balanced-last", "flip-against"))],
)
@pytest.mark.slow
def test_prompt_errors_of_answers_and_patching_are_kept(runs, lab, task, metrics):
    found = runner.ask(Saturation(factors=(10.0, 100.0), prompts=64), runs(task, "softmax"), lab)
    asked = Saturation()
    drawn, value, most = (partial(each, found) for each in (asked.on_resamples, asked.value, asked.prompts_error))
    cells = {"factor": [10.0, 100.0]}
    for metric in metrics:
        told = drawn("softmax", cells, metric, 0)
        assert told[0] == pytest.approx(value("softmax", cells, metric, 0), rel=1e-3, abs=1e-3)
        if metric in ("mse", "last", "recovered"):  # a model of five steps gives all the same answer: of each class
            assert told[1:].std() > 0  # all or none is wrong, whichever prompts are drawn
        if metric == "recovered":
            assert math.isnan(most("softmax", cells, metric, 0))  # a share of errors has no error of its own
        else:
            assert told[1:].std() <= 1.5 * most("softmax", cells, metric, 0)
    heads = found["heads"].where(metric="largest", factor=[10.0, 100.0]).frame
    assert most("softmax", cells, "largest", 0) == pytest.approx(heads["stderr"].mean())
    for metric in ("largest", "deviant-last-best", "outputs-healed"):
        if metric != "outputs-healed" or "stream" in found.grids:
            assert drawn("softmax", cells, metric, 0) is None
    assert drawn("softmax", {**cells, "layer": [0], "head": [0]}, "recovered", 0) is None
    assert set(drawn("reference:nothing", cells, "recovered", 0)) == {0}
    assert most("reference:nothing", cells, "recovered", 0) == 0


@pytest.mark.parametrize(
    ("disturbed", "patched", "told"),
    [
        ((4.0, 6.0), (1.0, 5.0), {2 / 3, 1.0, 1 / 3}),  # (5 - 3) / (5 - 2) of both, (4 - 1) / (4 - 1) of the first
        ((4.0, 3.0), (2.0, 3.0), {2 / 3}),  # the second adds no error: drawn alone, it takes the value of both
    ],
)
def test_the_recovered_share_on_resamples_by_hand(disturbed, patched, told):
    """Two prompts err 1 and 3 undisturbed. Where a factor added no error its share is left out, as in the value."""
    who = {**WHO, "stderr": None, "count": 1}
    errors = {
        1.0: {"mse": (1.0, 3.0)},
        2.0: {"mse": (1.0, 3.0), "patched": (1.0, 3.0)},
        10.0: {"mse": disturbed, "patched": patched},
    }
    rows = [
        {**who, "factor": factor, "metric": metric, "prompt": prompt, "value": value}
        for factor, found in errors.items()
        for metric, values in found.items()
        for prompt, value in enumerate(values)
    ]
    shares = [{**who, "factor": 10.0, "layer": -1, "head": -1, "metric": "recovered", "value": 2 / 3}]
    shares += [{**shares[0], "factor": 2.0, "value": math.nan}]
    grids = {"patches": Grid.of(shares, ["layer", "head", "factor"]), "prompts": Grid.of(rows, ["factor", "prompt"])}
    found, cells = StoredGrids(grids), {"factor": [2.0, 10.0]}
    drawn = Saturation().on_resamples(found, "softmax", cells, "", 0)
    assert drawn[0] == pytest.approx(2 / 3)
    assert {round(value, 6) for value in drawn} == {round(value, 6) for value in told}
    assert Saturation().value(found, "softmax", cells, "", 0) == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_query_that_grows_is_read_at_its_own_token(runs, lab):
    """Of four numbers the last grows: its weight on itself is that of a single token, and each answer is compared."""
    groups = runs("every:balance=half", "softmax")
    analysis = Saturation(position=-1, length=4, factors=(1000.0,), prompts=64)
    found = runner.ask(analysis, groups, lab)
    run, task = groups["softmax"][0], tasks.build("every:balance=half")
    trained = frame.TrainedModel("softmax", run, lambda: load_or_train(run, lab), task, lab, True, print)
    undisturbed = trained.prompts(64, {**trained.cell, "length": 4})
    wild = trained.task.deviate(undisturbed, [3], 1000.0)
    seen = []
    trained.model(wild.tokens, lambda layer, weights, scores: seen.append(weights[:, :, 6, 6].mean(0)))
    own = found["heads"].where(metric="deviant", factor=1000.0)
    assert [own.at(head=head) for head in (0, 1)] == pytest.approx(seen[0].tolist(), rel=1e-5)
    against = trained.task.misleads(undisturbed, 3)
    assert against.tolist() == (wild.tokens[:, 6, 0] > 0).ne(wild.targets[:, 6] > 0).tolist()
    assert 5 < against.sum() < 59
    trained.model(wild.tokens, lambda layer, weights, scores: seen.append(weights[against][:, :, 6, 6].mean(0)))
    misled = found["heads"].where(metric="deviant-against", factor=1000.0)
    assert [misled.at(head=head) for head in (0, 1)] == pytest.approx(seen[1].tolist(), rel=1e-5)
    assert own.at(head=0) != pytest.approx(found["heads"].at(metric="deviant", factor=1.0, head=0), rel=1e-3)
    table = "\n".join(analysis.table(found))
    assert "| `softmax` | last layer, best head |" in table
    assert "| `softmax` | MLP outputs | " in table
    assert "answers: as-largest" in table


@pytest.mark.slow
def test_a_query_whose_truth_grows_with_it_has_no_calm_answer(runs, lab):
    """In regression the answer to a stretched query is another number, so that nothing is put back."""
    found = runner.ask(Saturation(position=-1, factors=(10.0,), prompts=64), runs("linear", "softmax"), lab)
    assert set(found.grids) == {"heads", "errors", "patches", "prompts"}
    assert found["errors"].at(metric="mse", factor=10.0) == found["errors"].at(metric="last", factor=10.0)
    assert Saturation().figures(found, "a title").keys() == {"saturation", "heads"}


@pytest.mark.slow
def test_factors_below_1_are_patched_and_shown(runs, lab):
    analysis = Saturation(factors=(0.5, 10.0), prompts=64)
    found = runner.ask(analysis, runs("linear", "ssa"), lab)
    assert found["patches"].values("factor") == [0.5, 10.0]
    table = analysis.table(found)
    header = next(place for place, line in enumerate(table) if line.startswith("| share of the added error"))
    assert table[header].endswith("| x0.5 | x1 | x10 |")
    assert re.fullmatch(r"\| `ssa` \| \S+ \|  \| \S+ \|", table[header + 2])  # nothing is recovered at x1


@pytest.mark.parametrize(
    ("position", "length", "tag"),
    [(0, None, ""), (38, None, "at-38"), (-1, None, "at-query"), (3, 4, "at-3-length-4"), (0, 4, "length-4")],
)
def test_every_number_may_grow_and_the_folder_says_which(position, length, tag):
    analysis = Saturation(position=position, length=length)
    analysis.check(resolve("linear", "softmax", "smoke"))
    assert analysis.tag == tag


def test_a_later_option_leaves_old_records_as_they_were():
    assert set(publish.options(Saturation())) == {"position", "factors", "prompts"}
    assert publish.options(Saturation(length=4))["length"] == 4


def stored_results(folder, recovered=0.25):
    """The files of one run with two heads, as the analysis writes them."""
    cell = {"stderr": 0, "count": 9}
    heads = [
        {"layer": 0, "head": head, "factor": factor, "metric": "deviant", "value": factor / 1000 + head, **cell}
        for head in (0, 1)
        for factor in (1.0, 100.0)
    ]
    errors = [{"factor": factor, "metric": "mse", "value": factor, **cell} for factor in (1.0, 100.0)]
    patches = [
        {"layer": layer, "head": layer, "factor": 100.0, "metric": "recovered", "value": value, **cell}
        for layer, value in ((-1, recovered), (0, 9.0))
    ]
    axes = ["layer", "head", "factor"]
    for name, rows in (("heads", heads), ("errors", errors), ("patches", patches)):
        (folder / f"{name}.csv").write_text(Grid.of(rows, ["factor"] if name == "errors" else axes, **WHO).csv())


def test_claims_are_read_from_stored_files(tmp_path):
    analysis, cells = Saturation(), {"factor": [100.0]}
    stored_results(tmp_path)
    found = analysis.read(tmp_path)
    assert analysis.seeds(found) == [0]
    assert analysis.value(found, "softmax", cells, "deviant", 0) == pytest.approx(0.6)  # the mean of two heads
    both = analysis.value(found, "softmax", {"factor": [1.0, 100.0]}, "mse", 0)
    assert both == pytest.approx((math.log(1) + math.log(100)) / 2)
    assert analysis.value(found, "softmax", cells, "recovered", 0) == 0.25
    assert analysis.value(found, "softmax", cells, "", 0) == 0.25
    assert analysis.value(found, "softmax", {**cells, "layer": [0], "head": [0]}, "recovered", 0) == 9
    assert analysis.value(found, "reference:nothing", {}, "recovered", 0) == 0
    with pytest.raises(KeyError, match="names its factor"):
        analysis.value(found, "softmax", {}, "mse", 0)
    with pytest.raises(KeyError, match="no cell has attn=reference:nothing"):
        analysis.value(found, "reference:nothing", cells, "mse", 0)


def test_only_squared_errors_are_compared_as_ratios():
    numbers, classes = tasks.build("linear"), tasks.build("every")
    scales = [Saturation().scale_of(numbers, metric) for metric in ("mse", "last", "recovered", "", "deviant")]
    assert scales == ["log-ratio"] * 2 + ["difference"] * 3
    assert Saturation().scale_of(classes, "last") == "difference"
    assert Deviant().scale_of(numbers, "mse") == "log-ratio"
    assert Deviant().scale_of(classes, "balanced-last") == "difference"


def heads_of(weights, metric="deviant"):
    """A grid of weights on the number: (layer, head, factor) -> weight."""
    rows = [
        {"layer": layer, "head": head, "factor": factor, "metric": metric, "value": value, "stderr": value**2}
        for (layer, head, factor), value in weights.items()
    ]
    return StoredGrids({"heads": Grid.of(rows, ["layer", "head", "factor"], **WHO)})


def test_the_best_head_has_the_most_weight_on_the_number():
    """By hand: head 0.1 of all at x1, head 1.0 of all and of the last layer at x10."""
    weights = {1.0: (0.1, 0.9, 0.2, 0.4), 10.0: (0.1, 0.3, 0.8, 0.0)}  # of heads 0.0, 0.1, 1.0 and 1.1
    heads = ((0, 0), (0, 1), (1, 0), (1, 1))
    found = heads_of({(*head, x): w for x, each in weights.items() for head, w in zip(heads, each, strict=True)})
    expected_heads = {(1.0, "best"): ("0.1", 0.9), (1.0, "last-best"): ("1.1", 0.4), (10.0, "best"): ("1.0", 0.8)}
    for (factor, name), expected in expected_heads.items():
        best = heads_named(found["heads"].where(factor=factor), name).frame.iloc[0]
        assert (f"{best['layer']:g}.{best['head']:g}", best["value"]) == expected
    value = partial(Saturation().value, found, "softmax")
    one, both = {"factor": [1.0]}, {"factor": [1.0, 10.0]}
    assert value(one, "deviant-last", 0) == pytest.approx(0.3)
    assert value(both, "deviant-last", 0) == pytest.approx(0.35)
    assert value(both, "deviant-last-best", 0) == pytest.approx((0.4 + 0.8) / 2)
    assert value(both, "deviant-best", 0) == pytest.approx((0.9 + 0.8) / 2)
    most = partial(Saturation().prompts_error, found, "softmax")  # here the square of each weight
    assert most(both, "deviant-best", 0) == pytest.approx((0.9**2 + 0.8**2) / 2)
    assert most(one, "deviant-last", 0) == pytest.approx((0.2**2 + 0.4**2) / 2)
    assert value(one, "deviant", 0) == pytest.approx(0.4)
    misled = heads_of({(0, 0, 1.0): 0.7, (1, 0, 1.0): 0.2}, "deviant-against")
    assert Saturation().value(misled, "softmax", one, "deviant-against-best", 0) == 0.7
    assert Saturation().value(misled, "softmax", one, "deviant-against-last-best", 0) == 0.2
    with pytest.raises(KeyError, match="'deviant-best' names its heads itself"):
        value({**one, "head": [0]}, "deviant-best", 0)


def test_missing_files_are_said(tmp_path):
    stored_results(tmp_path)
    (tmp_path / "patches.csv").unlink()
    found = Saturation().read(tmp_path)
    assert Saturation().value(found, "softmax", {"factor": [100.0]}, "mse", 0) == pytest.approx(math.log(100))
    with pytest.raises(KeyError, match=r"stands in patches\.csv, which is not there"):
        Saturation().value(found, "softmax", {"factor": [100.0]}, "recovered", 0)
    (tmp_path / "heads.csv").unlink()
    assert Saturation().read(tmp_path) is None


def test_no_formula_weight_where_tokens_are_read():
    prompt = LINEAR.sample(stream(0, "prompts"), 3, 5)
    for attn, known in (("softmax+gated", True), ("forget", False)):
        model = GPT2(ModelSpec(layers=1, heads=2, width=8), TokenSpec(1, 1, 2, 64), attn, stream(0, "init"))
        heads, _ = disturb(model, LINEAR, prompt, 1, [1.0, 10.0], CPU)
        found = {metric: [row["value"] for row in heads if row["metric"] == metric] for metric in ("theory", "largest")}
        assert all(math.isfinite(value) for value in found["largest"])
        assert [math.isfinite(value) for value in found["theory"]] == [known] * 4


def test_nothing_to_recover_is_said_instead_of_a_number(tmp_path):
    stored_results(tmp_path, recovered=math.nan)
    found = Saturation().read(tmp_path)
    with pytest.raises(KeyError, match="changed no answer"):
        Saturation().value(found, "softmax", {"factor": [100.0]}, "recovered", 0)
    grids = {**found.grids, "heads": Grid(found["heads"].frame.assign(metric="largest"))}
    sentence = Saturation().finding(Findings(grids, {"softmax": resolve("linear", "softmax")}))
    assert "recovers is unknown with softmax (no error was added)" in sentence


@pytest.mark.parametrize("name", ["every", "some"])
def test_agreement_with_the_sign_of_the_largest_by_hand(name):
    """The largest of 1, -2, 3, 70 is positive, that of -1, 2, -70, 3 negative; answers before the last do not count."""
    task = tasks.build(name)
    prompt = task._prompt(torch.tensor([[1.0, -2, 3, 70], [-1, 2, -70, 3]]))
    outputs = torch.zeros(2, 8, 1)
    for last, agrees in (((4.0, 4.0), [1, 0]), ((-4.0, -4.0), [0, 1]), ((4.0, -4.0), [1, 1])):
        outputs[:, 6, 0] = torch.tensor(last)
        assert task.agreement(outputs, prompt)["as-largest"].tolist() == agrees
        outputs[:, :6] = -outputs[:, :6] - 1
    assert task.agreement(task.references()["sign-of-largest"](prompt), prompt)["as-largest"].tolist() == [1, 1]
    assert LINEAR.agreement(outputs, prompt) == {}


def test_a_stretched_querys_error_is_of_its_own_answer():
    after = torch.tensor([[0.0, 1, 2, 3, 4, 7]])
    assert LINEAR.disturbed(after, after, None, [5])["mse"].tolist() == [7]
    assert LINEAR.disturbed(after, after, None, [4])["mse"].tolist() == [7]
    assert LINEAR.disturbed(after, after, None, [0])["mse"].tolist() == [pytest.approx(14 / 3)]
