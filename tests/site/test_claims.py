"""Every claim of the repository's record leads to its place, whose numbers are those of the record."""

import csv
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from icl_lab.claims import experiment as experiments
from icl_lab.claims import judge, ledger
from icl_lab.claims.sides import Sides
from icl_lab.comparison.rates import Curve
from icl_lab.extras.site import claims, comparisons
from icl_lab.extras.site.build import Stock, build
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from tests.site import made

ROOT = Path(__file__).parents[2]


class Places(HTMLParser):
    """The links of a page, and of each place with a name its text and the numbers that are marked as such."""

    def __init__(self, data):
        super().__init__()
        self.links, self.places, self.here = [], {}, None
        self.feed(data.decode())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "a":
            self.links.append(found["href"])
        if tag == "article" and "id" in found:
            self.here = self.places[found["id"]] = {"text": "", "numbers": [], "links": []}
        elif self.here is not None:
            self.here["numbers"] += [found["value"]] if tag == "data" else []
            self.here["links"] += [found["href"]] if tag == "a" else []

    def handle_endtag(self, tag):
        if tag == "article":
            self.here = None

    def handle_data(self, data):
        if self.here is not None:
            self.here["text"] += data


def repository(folder):
    """The runs of the repository, whose verdicts are in its record."""
    store = Store(folder / "results", Archive(ROOT / "results" / "evidence"))
    assert ledger.stored(store)
    return store


def recorded():
    return csv.DictReader((ROOT / "results" / "claims.csv").read_text().splitlines())


@pytest.fixture(scope="module", params=["lite", pytest.param("all", marks=pytest.mark.exhaustive)])
def stock(request, tmp_path_factory):
    """The claims of the repository, at one scale or at all, without the pages of runs and studies."""
    store = repository(tmp_path_factory.mktemp("none"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "findings", lambda *_, **__: pytest.fail("judged anew"))  # its verdicts are in the record
        if request.param != "all":
            patch.setattr(claims, "PRESETS", [request.param])
        found = claims.judged(store, ROOT / "experiments")
    return Stock(store.root, [], [], [], found)


@pytest.mark.slow
def test_every_claim_leads_to_its_cells_and_numbers(stock):
    site = build(stock)
    presets = {each.found.preset for each in stock.claims.all}
    rows = [row for row in recorded() if row["state"] != "not run" and row["preset"] in presets]
    assert len(rows) == len(stock.claims.all) > 100
    pages = {name: Places(data) for name, data in site.items() if name.endswith(".html")}
    linked = {link for link in pages["findings.html"].links if link.startswith("experiments/")}
    assert {link for link in pages["index.html"].links if link.startswith("experiments/") and "#" in link} <= linked
    by_key = {(each.found.experiment, each.found.preset, each.claim.statement): each for each in stock.claims.all}
    for row in rows:
        entry = by_key[row["experiment"], row["preset"], row["claim"]]
        assert entry.page in linked
        path, anchor = urldefrag(entry.page)
        place = pages[path].places[anchor]
        assert row["claim"] in place["text"]
        direction, *sizes = entry.found.verdict.split("; ")
        for part in (entry.badge, *sizes, *([] if entry.found.judged else [direction])):
            assert part in place["text"]
        if not row["effect"]:
            assert place["numbers"] == []
            continue
        assert place["numbers"] == [row["effect"]]
        on, back = (math.log, math.exp) if row["scale"] == "log-ratio" else (float, float)
        assert f"{back(float(row['effect'])):.3g}" in place["text"]
        if row["low"]:
            assert f"[{back(float(row['low'])):.3g}, {back(float(row['high'])):.3g}]" in place["text"]
        # The values beside it give the same number.
        left, right = (math.fsum(map(on, side)) / len(side) for side in (entry.found.left, entry.found.right))
        assert left - right == pytest.approx(float(row["effect"]), rel=1e-6, abs=1e-9), row
        assert [len(values) for _, values in entry.table] == [len(entry.seeds)] * 3


@pytest.mark.slow
def test_false_discovery_rates_are_those_of_the_record(tmp_path, monkeypatch):
    """They depend on the claims of all scales."""
    monkeypatch.setattr(comparisons, "against_baseline", lambda *_: None)
    found = claims.judged(repository(tmp_path), ROOT / "experiments").all
    assert len(found) > 400
    rates = {(row["experiment"], row["preset"], row["claim"]): float(row["q"] or "nan") for row in recorded()}
    for each in (entry.found for entry in found):
        assert each.q == pytest.approx(rates[each.experiment, each.preset, each.claim], nan_ok=True), each.claim


@pytest.mark.slow
def test_own_runs_are_judged_with_intervals_of_python(tmp_path):
    store = made.experiment(tmp_path)
    grids = {}
    found = claims.judged(store, tmp_path / "files", grids=grids)
    (entry,), (compared,) = found.all, found.comparisons
    found = entry.found
    assert (found.experiment, found.preset, found.seeds) == ("made", "smoke", (0, 1, 2))
    assert found.left == pytest.approx([20, 30, 24])
    assert found.right == pytest.approx([40, 40, 40])
    assert entry.effect == "0.608"
    assert len(grids) == 6  # each is read once, whoever asks
    ((name, seeds, effects),) = compared.columns  # the third has no run
    assert (name, seeds, compared.places) == ("half", 3, [1.0, 2.0, 10.0])
    assert compared.rows[0][:2] == ["1", "40"]
    assert effects[0].ratio[0] == pytest.approx(0.5 * (1.0 * 1.5 * 1.2) ** (1 / 3))  # below 1: the variant errs less
    assert compared.rows[0][2] == "{:.3g} [{:.3g}, {:.3g}]".format(*effects[0].ratio)
    assert compared.data["lines"][0]["low"][0] == pytest.approx(effects[0].ratio[1], rel=1e-3)
    assert effects[0].low < effects[0].effect < effects[0].high


@pytest.mark.slow
def test_learning_rates_of_an_experiment_are_those_of_its_preset(tmp_path):
    finished = Sides(experiments.load("table1-own-rates", ROOT / "experiments"), repository(tmp_path), "nano")
    compared = comparisons.against_baseline("table1-own-rates", finished, "nano")
    assert {name: curve.best for name, curve in compared.curves.items()} == {
        "softmax": 2, "ssa": 2, "lssa": 1, "entmax": 1, "sparsemax": 1, "cosformer": 2
    }  # fmt: skip
    data = compared.data["rates"]
    assert data["x"][:4] == [0.25, 0.5, 1, 2]
    assert data["lines"][0]["y"][3] == pytest.approx(0.0019, abs=5e-5)
    assert None not in data["lines"][1]["y"][:6]


def test_many_variants_are_a_table_alone(monkeypatch):
    compared = comparisons.Comparison("a", "lite", "softmax", "error", True, "x", [1, 2], [1.0, 1.0], 3, [("b", 3, [])])
    assert compared.drawn
    monkeypatch.setattr(comparisons, "MOST_CURVES", 0)
    assert (compared.drawn, compared.has_data) == (False, False)
    curve = Curve(resolve("linear", "softmax", "smoke"), {1: [0.2]}, 1.0, log=True)
    tuned = replace(compared, curves={"softmax": curve})
    assert (tuned.drawn, tuned.has_data) == (False, True)  # its curves over learning rates are


def test_claims_that_cannot_be_judged_say_why(tmp_path):
    (tmp_path / "broken.toml").write_text("title = ")
    found = claims.judged(made.store(tmp_path), tmp_path)
    assert ("broken.toml" in found.why_none, found.failed) == (True, True)
    (tmp_path / "broken.toml").unlink()
    found = claims.judged(made.store(tmp_path), tmp_path)
    assert ("No claim" in found.why_none, found.failed) == (True, False)
