"""The whole site: every page under its policy, every link to something that is there, every name as text."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import PurePosixPath
from urllib.parse import unquote, urldefrag

import pytest

from icl_lab.site import pages
from icl_lab.site.build import Stock, build
from icl_lab.site.findings import Findings
from tests.site import made

HOSTILE = ["<script>alert(1)<%script>", '"><img src=x onerror=alert(1)>', "' onclick='alert(1)", "{{ 7*7 }}", "a&amp;b"]


class Page(HTMLParser):
    """What a browser would make of a page: its tags with their attributes, and its text."""

    def __init__(self, data):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(data.decode())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def links(self):
        return [value for _, found in self.tags for name, value in found.items() if name in ("src", "href")]


@pytest.fixture
def store(tmp_path):
    store = made.store(tmp_path)
    for seed in (0, 1):
        made.finished(store, "softmax", seed)
        made.finished(store, "ssa", seed, factor=0.5, learned={"b 0.0": 0.5})
    made.measured(store.run(made.spec_of(), 0).swapped("ssmax:s=swap"))
    return store


@pytest.fixture
def site(store):
    runs = [store.run(made.spec_of(rule), seed) for rule in ("softmax", "ssa") for seed in (0, 1)]
    made.study(store.root, "compare-x", "It was found.\n\n| a | b |\n| --- | --- |\n| `c` | 1 |\n", members=runs)
    return made.site(store)


def html(site):
    return {name: Page(data) for name, data in site.items() if name.endswith(".html") and isinstance(data, bytes)}


def test_every_page_has_the_policy_and_asks_nobody_outside(site):
    for name, page in html(site).items():
        metas = [found for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy"]
        assert [meta["content"] for meta in metas] == [pages.POLICY], name
        assert not [link for link in page.links() if re.match(r"(?i)[a-z+]+:|//", link)], name
        assert not [tag for tag, found in page.tags if tag == "script" and not found.get("src")], name
        assert not [found for _, found in page.tags if "style" in found or any(key.startswith("on") for key in found)]


def test_the_policy_allows_nothing_but_what_lies_beside_the_pages():
    parts = dict(part.split(" ", 1) for part in pages.POLICY.split("; "))
    assert parts["default-src"] == "'none'"
    assert {word for value in parts.values() for word in value.split()} == {"'none'", "'self'", "file:"}
    assert {"base-uri", "form-action"} <= parts.keys()  # default-src does not speak of these


def test_no_file_of_ours_names_an_address_that_could_be_asked(site):
    for name, data in site.items():
        if isinstance(data, bytes) and name.endswith((".js", ".css")):
            found = re.findall(rb"https?://[^\s\"')]+", data)
            assert set(found) <= {b"https://github.com/leeoniya/uPlot"}, name  # in the comment that names the library
            assert not re.search(rb"@import|url\(\s*['\"]?(?!data:)", data), name


def test_every_link_leads_to_something(site):
    for name, page in html(site).items():
        for link in page.links():
            target, fragment = urldefrag(link)
            if not target:
                assert fragment in {found.get("id") for _, found in page.tags}, (name, link)
                continue
            parts = []
            for part in (PurePosixPath(name).parent / unquote(target)).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            assert "/".join(parts) in site, (name, link)


def test_every_run_has_a_page_with_its_data_and_its_command(site):
    runs = json.loads(site["data/runs.js"].decode().removeprefix('site.put("runs","runs",').removesuffix(");\n"))
    assert len(runs) == 5
    assert len({run["group"] for run in runs}) == 3
    for run in runs:
        page = Page(site[f"runs/{run['id']}.html"])
        text = " ".join(page.text)
        assert f"../data/{run['id']}.js" in page.links()
        assert f"--attn {run['name'].split('->')[0]}" in text
        assert "abc123" in text
    swapped = next(run for run in runs if run["swap"])
    assert "--swap ssmax:s=swap" in " ".join(Page(site[f"runs/{swapped['id']}.html"]).text)


def test_a_run_is_compared_with_all_seeds_of_the_others(site, store):
    page = next(page for name, page in html(site).items() if name.startswith("runs/linear-ssa"))
    (rival,) = [link for link in page.links() if "compare.html#" in link and link.count("softmax") == 2]
    assert rival.count("linear-ssa") == 2


def test_a_run_that_was_tested_elsewhere_is_no_rival(store):
    made.finished(store, "ssa", settings=["test.axes.length=10"])
    pages_of = html(made.site(store))
    page = next(page for name, page in pages_of.items() if name.startswith("runs/linear-softmax"))
    rivals = [link for link in page.links() if "compare.html#" in link and "linear-ssa" in link]
    assert len(rivals) == 1
    assert rivals[0].count("linear-ssa") == 2


def test_a_study_names_its_runs_and_copies_its_files_under_other_names(site, store):
    (name,) = [name for name in site if name.startswith("studies/")]
    page = Page(site[name])
    assert len([link for link in page.links() if link.startswith("../runs/")]) == 4
    assert "It was found." in " ".join(page.text)
    assert any(link.startswith("../compare.html#runs=") for link in page.links())
    copied = {PurePosixPath(path).name for path in site if path.startswith("files/")}
    assert copied == {"table.md", "forest.png", "record.json"}  # study.json would be taken for a study
    assert any(path.startswith("small/") for path in site)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_and_nothing_else(tmp_path, name):
    store = made.store(tmp_path)
    made.finished(store, "softmax")
    made.called(store, name.replace("%", "/"))
    made.study(store.root, name, f"{name}\n\n| {name} |\n| --- |\n| {name} |\n", command=name)
    site = made.site(store)
    for where, page in html(site).items():
        assert not [tag for tag, found in page.tags if tag == "img" and "onerror" in found], where
        assert not [found for _, found in page.tags if any(key.startswith("on") for key in found)], where
        assert not [tag for tag, found in page.tags if tag == "script" and not found.get("src")], where
    assert name.replace("%", "/") in " ".join(html(site)["index.html"].text)
    for where, data in site.items():
        if where.startswith("data/"):
            assert not re.search(rb"[<>&]", data), where
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", where), where


def test_an_empty_folder_says_how_to_make_a_first_run(tmp_path):
    text = " ".join(Page(made.site(made.store(tmp_path))["index.html"]).text)
    assert "icl-lab sweep" in text
    assert "--preset smoke" in text


def test_findings_come_first_with_their_verdicts(store):
    entries = [made.entry("A is less", "supported"), made.entry("B <b>is</b> less", "inconclusive")]
    site = build(Stock.of(store, store.root, lambda *_: Findings(entries, entries)))
    for name in ("index.html", "findings.html"):
        page = Page(site[name])
        text = " ".join(page.text)
        assert "B <b>is</b> less" in text
        assert [found["class"] for tag, found in page.tags if "badge" in found.get("class", "")] == [
            "badge yes",
            "badge open",
        ]
    assert "1 supported, 1 inconclusive" in " ".join(Page(site["index.html"]).text)


def test_a_verdict_leads_to_the_study_that_it_is_read_from_and_stands_on_its_page(store):
    runs = [store.run(made.spec_of(), seed) for seed in (0, 1)]
    made.study(store.root, "experiments/made-smoke", "Few.", members=runs[:1])
    more = made.study(store.root, "experiments/made-smoke-0a1b2c", "More.", members=runs)
    made.study(store.root, "experiments/made-lite", "At another scale.", members=runs)
    few = made.entry("A is less", "one seed")
    few = replace(few, finding=replace(few.finding, study=more.with_name("made-smoke")))
    grids = made.entry("B is less", "supported")  # told by grids: the study with most runs shows them
    third = replace(grids.finding, about=((runs[0].spec.hash, ""),), seeds=(0, 1, 2))  # more than any study shows
    entries = [few, grids, made.entry("C is less", "supported", preset="nano"), replace(grids, finding=third)]
    stock = Stock.of(store, store.root, lambda *_: Findings(entries, entries))
    page_of = {study.place: f"studies/{study.id}.html" for study in stock.studies}
    site = build(stock)
    links = [link for link in Page(site["findings.html"]).links() if link.startswith("studies/")]
    assert links == [page_of["experiments/made-smoke"], page_of["experiments/made-smoke-0a1b2c"]]
    for place, statement in (("made-smoke", "A is less"), ("made-smoke-0a1b2c", "B is less")):
        page = Page(site[page_of[f"experiments/{place}"]])
        told = " ".join(page.text)
        assert [each for each in ("A is less", "B is less", "C is less") if each in told] == [statement]
        others = {page_of[f"experiments/{name}"] for name in ("made-smoke", "made-smoke-0a1b2c", "made-lite")}
        others.discard(page_of[f"experiments/{place}"])
        assert {f"studies/{link}" for link in page.links()} & set(page_of.values()) == others


def test_a_verdict_without_a_study_leads_to_its_runs_side_by_side(store):
    def about(statement, seeds, *runs):
        entry = made.entry(statement, "supported")
        tests = tuple((run.spec.hash, run.swap) for run in runs)
        return replace(entry, finding=replace(entry.finding, seeds=seeds, about=tests))

    made.finished(store, "ssmax", 0)
    softmax, ssa, ssmax = (store.run(made.spec_of(rule), 0) for rule in ("softmax", "ssa", "ssmax"))
    swapped = softmax.swapped("ssmax:s=swap")
    entries = [
        about("A", (0, 1), softmax, ssa),
        about("B", (0,), softmax, swapped),
        about("C", (1,), ssmax),  # a run that is not there
        about("D", (0,), ssmax),  # nothing beside it
    ]
    stock = Stock.of(store, store.root, lambda *_: Findings(entries, entries))
    site, named = build(stock), {card.id: (card.name, card.seed) for card in stock.cards}
    links = [link for link in Page(site["findings.html"]).links() if link.startswith("compare.html#")]
    both, beside = ({named[each] for each in link.partition("runs=")[2].split(",")} for link in links)
    assert both == {("softmax", 0), ("softmax", 1), ("ssa", 0), ("ssa", 1)}
    assert beside == {("softmax", 0), ("softmax->ssmax:s=swap", 0)}
    assert Page(site["index.html"]).links().count(links[0]) == 1


def test_a_study_that_is_no_experiments_has_none_beside_it_and_the_list_counts_its_seeds(store):
    runs = [store.run(made.spec_of(), seed) for seed in (0, 1)]
    for name, members in (("compare-x", runs), ("compare-y", runs[:1]), ("notes", [])):
        made.study(store.root, name, "Found.", members=members)
    stock = Stock.of(store, store.root, made.none)
    site = build(stock)
    pages_of = {study.place: f"studies/{study.id}.html" for study in stock.studies}
    assert all("Other studies" not in " ".join(Page(site[page]).text) for page in pages_of.values())
    rows = re.findall(r'href="(studies/[^"]+)".*?data-c="seed"[^>]*>([^<]*)<', site["index.html"].decode(), re.DOTALL)
    assert dict(rows) == {
        pages_of["compare-x"]: "2 seeds",
        pages_of["compare-y"]: "1 seed",
        pages_of["notes"]: "",
    }


def test_a_league_is_shown_on_the_first_page(store):
    table = "# League\n\nTwo rules.\n\n### Mean rank far\n\n| rule | mean rank |\n| --- | --- |\n| `ssa` | 1.25 |\n"
    made.study(store.root, "league-smoke", table, kind="league")
    text = " ".join(Page(made.site(store)["index.html"]).text)
    assert "Mean rank far" in text
    assert "1.25" in text


def test_a_damaged_run_and_a_damaged_study_are_listed_as_such(store):
    folder = made.study(store.root, "compare-y", "Fine.")
    (folder / "study.json").write_text("{}")
    grid = store.run(made.spec_of("ssa"), 1).folder / "grid.csv"
    grid.write_bytes(grid.read_bytes() + b"x")
    page = Page(made.site(store)["index.html"])
    rows = [found for tag, found in page.tags if tag == "tr" and found.get("class") == "damaged"]
    assert sorted(row["data-kind"] for row in rows) == ["run", "study"]
    text = " ".join(page.text)
    assert "grid.csv is damaged or edited" in text
    assert "study.json" in text
