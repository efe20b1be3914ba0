"""The card of a normalizer: verdicts by hand on made-up runs, the suite's files, the command and what it refuses."""

import dataclasses
import functools
import html
import json
import math
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import icl_lab as icl
from icl_lab.analyses.profiles.costs import attention_bytes
from icl_lab.base.grid import Grid
from icl_lab.claims import card, experiment, judge
from icl_lab.claims.card import PRESET, Card
from icl_lab.claims.ledger import Finding
from icl_lab.claims.sides import Sides
from icl_lab.cli.output import rendered
from icl_lab.comparison.verdict import State
from icl_lab.execute.judge import Trial, cards, judge_all
from icl_lab.execute.judge import judge as tried
from icl_lab.execute.where import Where
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.measure import Errors
from icl_lab.runs.run_files import encode_history
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store
from icl_lab.testing import facts, rule_inputs
from tests.claims import given

ROOT = Path(__file__).parents[2]
FILES = ROOT / "experiments"
pytestmark = pytest.mark.usefixtures("quick_pictures")
SUITE = """
title = "Made"
paper = "Somebody, 2025"
task = "linear"
baseline = "softmax"
conditions = "none"
set = [
  "train.steps=5", "train.batch=4", "test.prompts=64",
  "test.axes.sigma_x=1", "test.axes.sigma_f=1,4,5", "test.axes.length=40",
]
variants = [{name = "softmax", attn = "softmax"}, {name = "RULE", attn = "RULE"}]

[[claims]]
statement = "RULE errs less than softmax in training conditions"
where = "here"
left = {of = "RULE"}
is = "below"
right = {of = "softmax"}
margin = 1.25
because = "a quarter"

[[claims]]
statement = "RULE errs less than softmax far away"
where = "here-far"
left = {of = "RULE", cells = { sigma_f = [4, 5] }}
is = "below"
right = {of = "softmax", cells = { sigma_f = [4, 5] }}
margin = 1.25
because = "a quarter"
"""
MINE = '''
from icl_lab.normalizers import registry
from icl_lab.normalizers.ssa import SSA


@registry.add("mine")
class Mine(SSA):
    """The self-adjusting softmax under another name, with its power at 1.2.

    Formula: w = (1 + b|z|)^(n sgn z) / sum
    Paper: yours, 2026
    """

    {trait}

    def __init__(self, site):
        super().__init__(site, n=1.2)
'''


@pytest.fixture(scope="module", autouse=True)
def _measured_once():
    """Facts about the weights of a choice are the same in every test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("facts", "largest", "nearest"):
            patch.setattr(facts, name, functools.cache(getattr(facts, name)))
        yield


@pytest.fixture
def files(tmp_path):
    """A folder of experiments with a suite of one task."""
    (tmp_path / "files" / "suite").mkdir(parents=True)
    (tmp_path / "files" / "suite" / "tiny.toml").write_text(SUITE)
    (tmp_path / "files" / "suite" / "version.txt").write_text("7\n")
    return tmp_path / "files"


@pytest.fixture
def finish(tmp_path, files):
    """Publishes a run of the suite that nobody trained: errors are sigma_f times a factor."""
    made, store = experiment.load("tiny", files / "suite"), Store(tmp_path / "results")

    def call(attn, seed, factor, seconds=10.0, machine="A"):
        asked = card.instance(made, [attn], "softmax")
        run = store.run(asked.spec(asked.variant(attn) or asked.variants[0], PRESET), seed)
        env = {"seconds": seconds, "steps_timed": 5, "machine": machine, "threads": 1, "commit": "abc"}
        step = {"loss": 1.0, "length": 40.0, "rate": 1e-3}
        history = encode_history([{"step": at, **step, "bound": at / seconds} for at in (30.0, 60.0)])
        run.publish_trained({"history.csv": history, "env.json": json.dumps(env).encode(), "model.safetensors": b"w"})
        rows = [
            {"sigma_x": 1.0, "sigma_f": sigma, "length": 40.0, "attn": name, "metric": "mse-code"}
            | {"value": sigma * times, "stderr": 1e-6, "count": 64}
            for sigma in (1.0, 4.0, 5.0)
            for name, times in ((run.name, factor), ("reference:zero", 3.0), ("reference:least-squares", 1e-9))
        ]
        grid = Grid.of(rows, ["sigma_x", "sigma_f", "length"], **run.labels)
        positions = Grid.of([], ["sigma_x", "sigma_f", "index"], **run.labels)
        run.finish(grid, positions, Errors(["sigma_x", "sigma_f", "length"]))

    return call


@pytest.fixture
def three(finish):
    """Three seeds: softmax errs 0.1, 0.101, 0.099 times sigma_f, ssa 0.05."""
    for seed, factor in enumerate((0.1, 0.101, 0.099)):
        finish("softmax", seed, factor, seconds=10.0 + seed)
        finish("ssa", seed, 0.05, seconds=22.0 + seed)


@pytest.fixture
def words(files, tmp_path):
    """Options that name the test's folders."""
    return ["--experiments", str(files), "--results", str(tmp_path / "results"), "--device", "cpu"]


def finding(state=State.JUDGED, **fields):
    return Finding(claim="c", relation="below", state=state, **fields)


def of(left, right, **fields):
    return given.judged(given.claim(margin=1.25, because="a quarter"), left, right, **fields)


BETTER = [1.0, 1.01, 0.99], [2.0, 2.03, 1.99]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (of(*BETTER), "better"),
        (of(*reversed(BETTER)), "worse"),
        (of([0.970, 0.971, 0.969], [1.0, 1.0, 1.0]), "alike"),  # below, and by less than a quarter
        (of([1.0], [2.0]), "open: +2"),
        (of([1.0, 1.2, 1.2], [1.1, 1.1, 1.1]), "open: +5"),  # a wide interval has its outlook
        (of([1.0, 5.0, 0.2], [1.1, 1.1, 1.1]), "open: +64"),
        (finding(more=1), "open: +1"),
        (finding(State.NOT_RUN), "not run"),
        (finding(State.NOT_LEARNED), "not learned"),
        (finding(State.AT_BOUND), "at the ceiling"),
    ],
)
def test_a_verdict_is_read_from_the_finding(found, word):
    assert card.verdict_words(found) == word


def made_card(answers, slowdown=1.208):
    return Card(
        rule="mine",
        version="1",
        rates="shared",
        answers={"softmax": answers},
        slowdown={"softmax": slowdown},
        memory={"softmax": 5.149},
        facts={"sum to 1": True, "never negative": False},
        inside={"mine": (0.25, 0.0625, 8.04), "softmax": (0.5, 0.125, math.nan)},
        nearest=("ssa:n=1.2", 0.0102),
        distance="half the sum",
    )


def test_the_sentence_counts_every_question():
    answers = {"a": of(*BETTER), "b": of(*BETTER), "c": of(*reversed(BETTER)), "d": finding(State.NOT_RUN)}
    said = "On 2 of 4 questions better than softmax, on 1 worse, 0 alike, 0 open; 1 not run; "
    assert made_card(answers).sentence("softmax") == f"{said}1.21 times the training time."
    assert made_card(answers, math.nan).sentence("softmax") == f"{said}the time of a training is not known."


def test_a_card_fits_eighty_columns():
    names = ("linear-rescaled", "every-30", "needle", "text-far")
    found = (of(*BETTER), of([1.0, 3.0, 2.0], [2.0, 2.0, 2.0]), finding(State.NOT_BETTER), of([1.0], [2.0]))
    shown = rendered("\n".join(made_card(dict(zip(names, found, strict=True))).lines()), 80, prose=True)
    plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= 80
    assert "more column" not in plain
    assert "Nearest known weights: `ssa:n=1.2`, 0.010 apart (half the sum)." in plain
    assert "Weights: sum to 1. Not: never negative." in plain
    assert "Memory of attention over 512 tokens, forward and backward: 5.15 times `softmax`." in " ".join(plain.split())


def test_places_are_filled_whatever_the_names_hold(files):
    made = card.instance(experiment.load("tiny", files / "suite"), ["softmax+gated", "lssa"], "ssa")
    assert [(each.name, each.attn) for each in made.variants] == [(n, n) for n in ("ssa", "softmax+gated", "lssa")]
    assert made.claims[1].statement == "softmax+gated errs less than ssa far away"
    assert [(each.left.of, each.right.of) for each in made.claims[::2]] == [("softmax+gated", "ssa"), ("lssa", "ssa")]


def test_the_suite_is_apart_from_the_ledger_and_shares_its_runs():
    suite = card.suite(FILES)
    names = [made.name for made in suite.experiments]
    assert suite.version.startswith("1")
    assert not set(names) & set(experiment.names(FILES))
    assert len(set(suite.questions)) == len(suite.questions)
    assert card.suite(FILES, ["linear-far"]).questions == ["linear-far"]  # a question, or how several begin
    assert card.suite(FILES, ["every", "text"]).questions == ["every-10", "every-30", "text", "text-far"]
    for name in ("linear", "every"):
        asked = card.instance(suite.experiments[names.index(name)], ["ssa"], "softmax")
        known = experiment.load(f"causes-{name}", FILES)
        there = {known.spec(variant, PRESET).hash for variant in known.variants}
        assert {asked.spec(variant, PRESET).hash for variant in asked.variants} <= there
    for made in suite.experiments:
        for claim in made.claims:
            assert claim.margin is not None
            spec = made.spec(made.variants[0], PRESET)
            assert all(set(values) <= set(spec.test.axes[axis]) for axis, values in claim.left.cells.items())


@pytest.mark.usefixtures("three")
def test_a_card_is_right_by_hand(run, words):
    """Half the error in both; ssa takes 23 s, softmax 11 s."""
    out, err = run.ok("judge", "ssa", *words, "--json")
    found = json.loads(out)
    assert found["verdict"]["softmax"].startswith("On 2 of 2 questions better than softmax, on 0 worse")
    assert found["slowdown"]["softmax"] == pytest.approx(23 / 11)
    assert found["memory"]["softmax"] == attention_bytes("ssa", 512) / attention_bytes("softmax", 512)
    near, far = found["questions"]
    assert [near["question"], far["question"]] == ["here", "here-far"]
    softmax = (0.1 * 0.101 * 0.099) ** (1 / 3)
    assert [near["effect"], far["effect"]] == pytest.approx([0.05 / softmax] * 2)
    assert (near["value"], near["baseline"]) == pytest.approx((0.05, softmax))
    # The error over cells is a mean of logarithms: the root of 4 times 5.
    assert far["value"] == pytest.approx(math.sqrt(20) * near["value"])
    assert (found["suite"], near["seeds"], near["marks"]) == ("7", 3, "‡°")
    # C at the end of each training, here 60 over its seconds: of the three the median.
    assert [values[2] for values in found["inside"].values()] == pytest.approx([60 / 23, 60 / 11])


@pytest.mark.usefixtures("three")
def test_python_returns_the_same_card(files, tmp_path):
    where = icl.Where(results=tmp_path / "results", experiments=files, progress=False, device="cpu")
    judged = icl.judge("ssa", only="here-far", where=where)
    table = judged.table()
    assert table[["question", "verdict", "seeds"]].to_numpy().tolist() == [["here-far", "better", 3]]
    assert table["effect"].tolist() == pytest.approx([0.5], rel=1e-4)
    assert "better than softmax" in repr(judged)


@pytest.mark.usefixtures("three")
def test_the_table_of_all_trains_nothing(run, words, tmp_path):
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    out, _ = run.ok("judge", "--all", *words)
    assert "| `ssa` | better‡ 0.5 | better‡ 0.5 |" in out
    assert "| `lssa` | — | — |" in out
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


@pytest.mark.usefixtures("three")
def test_the_page_of_a_card_says_what_the_terminal_says(run, words, tmp_path):
    page = tmp_path / "cards" / "ssa.html"
    assert run("judge", "ssa", *words, "--dry-run", "--out", str(page))[0] == 0
    assert not page.exists()
    out, err = run.ok("judge", "ssa", *words, "--out", str(page))
    assert f"wrote {page}" in err
    text = " ".join(re.sub(r"<[^>]+>", " ", page.read_text()).split())
    title, *lines = [line for line in out.splitlines() if line and not line.startswith("| ---")]
    assert "ssa against softmax" in text
    for cell in (part.strip(" `") for line in lines for part in line.strip("|").split(" | ")):
        assert html.escape(cell.replace("`", ""), quote=False).replace("'", "&#39;") in text, cell
    assert "http" not in page.read_text()
    assert page.read_text().count("<main>") == 1
    assert "--out writes the card of one normalizer" in run.refused("judge", "--all", *words, "--out", str(page))[1]


@pytest.mark.usefixtures("three")
def test_stored_cards_are_those_that_are_asked_one_by_one(finish, files, tmp_path):
    for seed, factor in enumerate((0.1, 0.2, 0.1)):
        finish("lssa", seed, factor)
    lab, where = lab_of(tmp_path), Where(results=tmp_path / "results", experiments=files, progress=False)
    found = judge_all(Trial(""), lab.store, where)["softmax"]
    made = cards(found, lab.store, where)
    assert [each.rule for each in made] == ["lssa", "ssa"]  # others were not run
    for each in made:
        alone = tried(Trial(each.rule), lab, dataclasses.replace(where, dry_run=True))
        assert each.lines() == alone.lines()
        assert [a.q for a in each.answers["softmax"].values()] == [a.q for a in alone.answers["softmax"].values()]
    # By hand: two equal p are 2 of 4 in the table, whose rate is p 4/2, and 2 of 2 in the card.
    in_table, in_card = found["ssa"]["here"], made[1].answers["softmax"]["here"]
    assert [in_table.q, in_card.q] == pytest.approx([2 * in_table.p, in_table.p])


def lab_of(tmp_path, archive=None):
    return Lab(Store(tmp_path / "results", archive), Where(device="cpu").torch_device(), lambda text: None)


@pytest.mark.parametrize(("stored", "asked"), [((3, 4, 5, 6), [3, 4, 5]), ((), [0, 1, 2]), ((7,), [0, 1, 7])])
def test_seeds_are_those_of_the_baseline_first(finish, files, run, words, stored, asked):
    for seed in stored:
        finish("softmax", seed, 1.0)
    out, err = run.ok("judge", "ssa", *words, "--dry-run")
    assert [int(seed) for seed in re.findall(r"^to do.*/ssa/.*seed-(\d+)$", out, re.MULTILINE)] == asked


def test_answers_are_those_of_the_ledger_on_the_same_cells(tmp_path):
    """`causes-linear` asks for another relation and margin in the same cells; value and interval are the same."""
    lab = lab_of(tmp_path, Archive(ROOT / "results" / "evidence"))
    judged = tried(Trial("ssa", only=["linear-far"]), lab, Where(experiments=FILES, dry_run=True, progress=False))
    (row,), whole = judged.rows(), experiment.load("causes-linear", FILES)
    # Which seeds may have suggested a claim is the ledger's concern alone.
    sides = Sides(replace(experiment.only(whole, ["ssa"]), registered={}), lab.store, PRESET)
    of_ssa = [each for each in sides.experiment.claims if each.left.of == "ssa"]
    (claim,) = [each for each in of_ssa if each.where.startswith("prediction P1")]
    found = judge.judged(sides, claim)
    assert len(found.seeds) >= 3
    for name in ("effect", "low", "high"):
        assert row[name] == found.shown(getattr(found, name))
    assert row["seeds"] == len(found.seeds)


def test_the_nearest_weights_of_a_copy_are_those_of_the_original(own_parts, tmp_path):
    (tmp_path / "mine.py").write_text(MINE.format(trait=""))
    icl.import_parts(str(tmp_path / "mine.py"))
    assert facts.nearest("mine") == ("ssa:n=1.2", 0.0)
    assert facts.broken_promise("mine") == ""
    assert facts.nearest("softmax+gated") == ("softmax", 0.0)


def test_the_largest_weight_is_the_mean_over_rows_of_random_keys():
    """Average gives each of n keys 1 / n; of softmax it is computed anew from the same queries and keys."""
    assert facts.largest("average") == pytest.approx((1 / 16, 1 / 256))
    q, k, _ = rule_inputs.qkv(256)
    z = q @ k.mT / q.shape[-1] ** 0.5
    rows = [z[..., n - 1, :n].softmax(-1).amax(-1).mean().item() for n in (16, 256)]
    assert facts.largest("softmax") == pytest.approx(rows)
    assert rows[0] > 2 * rows[1]


def test_facts_are_measured():
    """Sparsemax moves with no shift of its scores; l1 of them with no scale, and a row of one sign sums to 1 or -1."""
    assert list(facts.facts("softmax").values()) == [True, True, True, True, True, False]
    assert facts.facts("average") == dict.fromkeys(facts.facts("average"), True)
    assert facts.facts("l1")["the same when all scores double"]
    assert not facts.facts("l1")["the same when all scores rise by 1"]
    assert not facts.facts("stick-breaking")["the same in any order of keys"]


@pytest.mark.usefixtures("three")
def test_an_open_question_names_the_next_look(finish, run, words):
    assert "next: " not in run.ok("judge", "ssa", *words)[0]
    for seed, factor in enumerate((0.1, 0.2, 0.1)):
        finish("lssa", seed, factor)
    code, out, _ = run("judge", "lssa", *words)
    assert "open" in out
    assert out.splitlines()[-1].startswith("next: icl-lab judge lssa --seeds 5 --experiments")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "name one normalizer, such as: icl-lab judge ssa"),
        (["ssa", "--all"], "name one normalizer"),
        (["ssaa"], "No normalizer is called 'ssaa'. Did you mean 'ssa'?"),
        (["softmax"], "softmax is compared with itself"),
        (["ssa:n=x"], "n must be"),
        (["ssa", "--only", "her"], "No question is called 'her'. Did you mean 'here'? There are: here, here-far."),
        (["ssa", "--rates", "own"], "no stored learning-rate curve with a best between two worse rates; make it:"),
    ],
)
def test_bad_input_is_one_line(run, words, tmp_path, asked, said):
    out, err = run.refused("judge", *asked, *words)
    assert not out
    assert said in err
    assert len([line for line in err.splitlines() if line and "Usage" not in line and "Try" not in line]) == 1
    assert not (tmp_path / "results").exists()


def test_a_normalizer_that_breaks_its_contract_is_not_trained(run, words, tmp_path, own_parts):
    (tmp_path / "mine.py").write_text(MINE.format(trait="sums_to_one = False"))
    _, err = run.refused("--import", str(tmp_path / "mine.py"), "judge", "mine", *words)
    assert "mine breaks the contract of normalizers, so that nothing is trained: rows sum to one where declared" in err
    assert not (tmp_path / "results").exists()


def test_a_folder_without_a_suite_is_said(run, tmp_path):
    assert "holds no suite of questions" in run.refused("judge", "ssa", "--experiments", str(tmp_path))[1]


@pytest.mark.slow
def test_one_trains_only_what_is_missing(run, words, finish, tmp_path):
    for seed in range(3):
        finish("softmax", seed, 0.1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*") if path.is_file()}
    out, err = run.ok("judge", "ssa", *words, "--seeds", "2")
    runs = Store(tmp_path / "results").runs(print)
    assert sorted((each.spec.attn, each.seed, each.finished) for each in runs) == [
        *(("softmax", seed, True) for seed in range(3)),
        *(("ssa", seed, True) for seed in range(2)),
    ]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "ssa has not learned its task" in out
    assert run("judge", "ssa", *words, "--seeds", "2", "--json")[0] == 0
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 5  # nothing is trained twice


def test_all_baselines_are_judged(three, finish, files, tmp_path):
    where = Where(experiments=files, progress=False)
    found = judge_all(Trial("", against=["softmax", "ssa"]), lab_of(tmp_path).store, where)
    assert list(found) == ["softmax", "ssa"]
    assert card.verdict(found["ssa"]["softmax"]["here"]) == "worse"


@pytest.mark.slow
def test_readme_shows_the_card_of_ssa(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(ROOT / "results" / "evidence"))
    out, err = run.ok("judge", "ssa", "--experiments", str(FILES), "--results", str(tmp_path))
    said, table = re.search(r"```text\n(On .*?)\n\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL).groups()
    assert " ".join(said.split()) in out
    rows = [re.split(r"  +", line.strip()) for line in table.splitlines()[1:]]
    assert len(rows) == 9
    printed = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
    assert rows == printed[2:]
