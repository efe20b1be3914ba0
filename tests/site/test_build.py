"""The whole site: every page under its policy, every link to something that is there, every name as text."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import PurePosixPath
from types import SimpleNamespace
from urllib.parse import unquote, urldefrag

import msgspec
import pytest

from icl_lab.comparison.verdict import State
from icl_lab.extras.site import overview, pages
from icl_lab.extras.site.build import DOCS, Stock, build
from icl_lab.extras.site.claims import Forest
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


@pytest.mark.slow
def test_every_page_has_the_policy_and_asks_nobody_outside(site):
    for name, page in html(site).items():
        metas = [found for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy"]
        assert [meta["content"] for meta in metas] == [pages.POLICY], name
        assert not [link for link in page.links() if re.match(r"(?i)[a-z+]+:|//", link)], name
        assert not [tag for tag, found in page.tags if tag == "script" and not found.get("src")], name
        assert not [found for _, found in page.tags if "style" in found or any(key.startswith("on") for key in found)]


@pytest.mark.slow
def test_every_page_describes_itself_to_those_who_link_to_it(site):
    said = {}
    for name, page in html(site).items():
        metas = {found.get("name", found.get("property")): found.get("content") for tag, found in page.tags}
        assert metas["og:description"] == metas["description"], name
        assert metas["og:title"].strip(), name
        picture = (PurePosixPath(name).parent / metas["og:image"]).parts
        assert "/".join(picture[picture.count("..") * 2 :]) == "pictures/causes.png", name
        said[name] = metas["description"]
    assert "pictures/causes.png" in site
    assert "Train small GPT-2 models" in said["index.html"]
    assert len(set(said.values())) > len(said) - 2  # two runs may have one error
    assert not [name for name, words in said.items() if not 20 < len(words) < 400 or "<" in words]


def test_the_policy_allows_only_what_lies_beside():
    parts = dict(part.split(" ", 1) for part in pages.POLICY.split("; "))
    assert parts["default-src"] == "'none'"
    assert {word for value in parts.values() for word in value.split()} == {"'none'", "'self'", "file:"}
    assert {"base-uri", "form-action"} <= parts.keys()  # default-src does not speak of these


@pytest.mark.slow
def test_no_file_of_ours_names_an_address_that_could_be_asked(site):
    for name, data in site.items():
        if isinstance(data, bytes) and name.endswith((".js", ".css")):
            found = re.findall(rb"https?://[^\s\"')]+", data)
            assert set(found) <= {b"https://github.com/leeoniya/uPlot"}, name  # in the comment that names the library
            assert not re.search(rb"@import|url\(\s*['\"]?(?!data:)", data), name


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_specification_has_a_page_with_its_command(site, store):
    specs = Stock.of(store, store.root, judge=made.none).specifications
    assert {spec.name: len(spec.seeds) for spec in specs} == {"softmax": 2, "ssa": 2, "softmax->ssmax:s=swap": 1}
    for spec in specs:
        page = Page(site[f"runs/{spec.id}.html"])
        text = " ".join(page.text)
        assert f"../data/{spec.id}.js" in page.links()
        assert f"--attn {spec.name.split('->')[0]}" in text
        assert "abc123" in text
        assert f"data/{spec.id}.js" in site
        assert ("--swap ssmax:s=swap" in text) == bool(spec.swap)


@pytest.mark.slow
def test_a_study_names_its_runs_and_copied_files(site, store):
    (name,) = [name for name in site if name.startswith("studies/")]
    page = Page(site[name])
    assert len([link for link in page.links() if link.startswith("../runs/")]) == 2
    assert "0, 1" in page.text  # its seeds
    assert "It was found." in " ".join(page.text)
    copied = {PurePosixPath(path).name for path in site if path.startswith("files/")}
    assert copied == {"table.md", "forest.png", "record.json"}  # study.json would be taken for a study


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.slow
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
    assert name.replace("%", "/") in " ".join(html(site)["runs.html"].text)
    for where, data in site.items():
        if where.startswith("data/"):
            assert not re.search(rb"[<>&]", data), where
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", where), where


def test_an_empty_folder_says_how_to_make_a_first_run(tmp_path):
    text = " ".join(Page(made.site(made.store(tmp_path))["index.html"]).text)
    assert "icl-lab sweep" in text
    assert "--preset smoke" in text


@pytest.mark.slow
def test_claims_come_first_with_their_verdicts(store):
    judge = made.claims(made.claim("A is less", "below"), made.claim("B <b>is</b> less", "inconclusive"))
    site = build(Stock.of(store, store.root, judge=judge))
    for name in ("index.html", "findings.html"):
        page = Page(site[name])
        assert "B <b>is</b> less" in " ".join(page.text)
        badges = [found["class"] for tag, found in page.tags if "badge" in found.get("class", "")]
        assert badges == ["badge yes", "badge open"]
        told = re.findall(r'badge \w+">([^<]+)</span>([^<]*)</div>', site[name].decode())
        assert told == [("as claimed", "°"), ("open", "°")]  # one word for the verdict: no direction beside it
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", site["findings.html"].decode().partition("</table>")[0])
    assert cells[:6] == ["paper", "as claimed", "against", "no difference", "open", "not judged"]
    assert cells[7:] == ["1", "", "", "1", ""]  # by hand: one as claimed, one open


@pytest.mark.slow
def test_a_claim_leads_to_its_own_place_with_both_sides_a_seed(store):
    runs = [store.run(made.spec_of(normalizer), 0) for normalizer in ("softmax", "ssa")]
    made.study(store.root, "experiments/made-smoke", "Few.", members=runs)
    specs = (*(run.spec.hash for run in runs), "00000000")
    entry = made.claim("A is less", "below", specs=specs, study="made-smoke")
    other = made.claim("B is less", "below", preset="lite")
    site = build(Stock.of(store, store.root, judge=made.claims(entry, other)))
    assert entry.page in Page(site["findings.html"]).links()
    path, anchor = urldefrag(entry.page)
    page = Page(site[path])
    assert {anchor, urldefrag(other.page)[1]} <= {found.get("id") for tag, found in page.tags if tag == "article"}
    text = " ".join(" ".join(page.text).split())
    for told in (
        *("A is less", "99 % interval [0.4, 0.6]", "ssa 1 2 3", "softmax 2 4 6", "ratio 0.5 0.5 0.5"),
        *("softmax at sigma_f 4, 5", "ssa below softmax", "0.1 against 0.2", "00000000 (not stored)"),
    ):
        assert told in text
    assert len([link for link in page.links() if link.startswith("../runs/linear-")]) == 2
    (study,) = [name for name in site if name.startswith("studies/")]
    assert f"../{study}" in page.links()
    assert f"../{entry.page}" in Page(site[study]).links()
    assert f"../{other.page}" not in Page(site[study]).links()


def test_a_forest_plot_has_a_row_per_scale_on_one_axis(store):
    wide = {"effect": math.log(0.7), "low": -9.0, "high": 0.5, "preset": "lite", "printed": math.log(0.25)}
    unlearned = {"state": State.NOT_LEARNED, "scale": None, "effect": math.nan, "low": math.nan, "high": math.nan}
    entries = made.claim("A is less", "below"), made.claim("A is less", "inconclusive", **wide)
    third = made.claim("A is less", "inconclusive", preset="nano", **unlearned)
    (alone,) = Forest.each([third, entries[1]])
    assert alone.ratio
    (plot,) = Forest.each(reversed(entries))
    assert [each.found.preset for each in plot.entries] == ["smoke", "lite"]
    # Effects 0, 0.7, 0.5 and 0.25, as logarithms, span log 4: so far below the least an interval is cut.
    low, high = -2 * math.log(4), 0.5
    for effect in (low, -1.0, 0.0, math.log(0.25), high):
        assert plot.x(effect) == pytest.approx(8 + (Forest.width - 16) * (effect - low) / (high - low), abs=0.06)
    assert (plot.x(-9.0), plot.x(9.0)) == (8, Forest.width - 8)
    assert [(plot.x(math.log(float(words))), words) for _, words in plot.ticks] == plot.ticks
    assert [words for _, words in plot.ticks] == ["0.1", "0.2", "0.5", "1"]
    page = build(Stock.of(store, store.root, judge=made.claims(*entries)))[urldefrag(entries[0].page)[0]].decode()
    table = page.partition('<table class="forest">')[2].partition("</table>")[0]
    assert [urldefrag(link)[1] for link in re.findall(r'href="([^"]+)"', table)] == [e.anchor for e in plot.entries]
    assert table.count('class="printed"') == 1
    assert f'class="reach" d="M8.0 11H{plot.x(0.5)}"' in table.replace("M8 ", "M8.0 ")


def test_the_scale_that_decides_most_stands_first(store):
    wide = {"low": -1.0, "high": 1.0, "preset": "lite"}
    entries = made.claim("A is less", "inconclusive", **wide), made.claim("A is less", "below", preset="deep2")
    page = build(Stock.of(store, store.root, judge=made.claims(*entries)))[urldefrag(entries[0].page)[0]].decode()
    assert re.findall(r">At preset (\w+)<", page) == ["deep2", "lite"]


def test_a_side_compared_with_itself_is_told_by_cells():
    entry = made.claim("A is less", "below")
    left = msgspec.structs.replace(entry.claim.left, of="softmax")
    same = replace(entry, claim=msgspec.structs.replace(entry.claim, left=left))
    assert same.relation == "softmax at training conditions below softmax at sigma_f 4, 5"


def test_the_first_page_has_readmes_findings_and_picture(store):
    site = build(Stock.of(store, store.root, judge=made.claims(made.claim("A is less", "below"))))
    text = " ".join(" ".join(Page(site["index.html"]).text).split())
    (bullet,) = re.findall(r"(?m)^\* \*\*SSA far from training\.\*\* (.*)$", (DOCS.parent / "README.md").read_text())
    assert " ".join(bullet.split())[:60] in text
    assert all(site[f"pictures/causes{kind}.png"].exists() for kind in ("", "-dark", "-narrow"))
    assert "docs/pictures" not in site["index.html"].decode()
    assert "cites" not in text
    assert "Train small GPT-2 models with softmax" in text
    assert re.search(r'<a href="boundary.html">The\s+last\s+layer</a>', site["index.html"].decode())
    assert site["index.html"].count(b"<ul>") == 1  # comments between findings part no list


def test_the_boundary_is_a_page_with_its_picture(site):
    page = Page(site["boundary.html"])
    assert "boundary.html" in Page(site["index.html"]).links()
    assert site["pictures/bound-law.png"] == DOCS / "pictures" / "bound-law.png"
    text = " ".join(page.text)
    assert "|answer − c| ≤ C" in text
    assert "**" not in text
    assert len([tag for tag, _ in page.tags if tag == "table"]) >= 2


@pytest.mark.slow
def test_the_list_counts_seeds_of_studies_without_experiment(store):
    runs = [store.run(made.spec_of(), seed) for seed in (0, 1)]
    for name, members in (("compare-x", runs), ("compare-y", runs[:1]), ("notes", [])):
        made.study(store.root, name, "Found.", members=members)
    stock = Stock.of(store, store.root, judge=made.none)
    site = build(stock)
    pages_of = {study.place: f"studies/{study.id}.html" for study in stock.studies}
    assert all("Other studies" not in " ".join(Page(site[page]).text) for page in pages_of.values())
    rows = re.findall(r'href="(studies/[^"]+)".*?data-c="seeds"[^>]*>([^<]*)<', site["runs.html"].decode(), re.DOTALL)
    assert {place: dict(rows)[page] for place, page in pages_of.items()} == {
        "compare-x": "2",
        "compare-y": "1",
        "notes": "",
    }


@pytest.mark.slow
def test_a_damaged_run_and_a_damaged_study_are_listed_as_such(store):
    folder = made.study(store.root, "compare-y", "Fine.")
    (folder / "study.json").write_text("{}")
    grid = store.run(made.spec_of("ssa"), 1).folder / "grid.csv"
    grid.write_bytes(grid.read_bytes() + b"x")
    index = made.site(store)["runs.html"]
    rows = re.findall(r'(?s)<tr[^>]*class="damaged".*?data-c="kind">(\w+)<', index.decode())
    assert sorted(rows) == ["run", "study"]
    text = " ".join(Page(index).text)
    assert "grid.csv is damaged or edited" in text
    assert "study.json" in text


def test_overlay_opens_with_examples_of_models_with_most_seeds():
    def spec(name, task, normalizer, seeds, differs=""):
        return SimpleNamespace(
            id=name, task=task, normalizer=normalizer, preset="nano", seeds=[0] * seeds, differs=differs, swap=""
        )

    known = [spec("a", "linear", "softmax", 3), spec("b", "linear", "ssa", 2), spec("c", "linear", "lssa", 5)]
    known += [spec("d", "linear", "relu", 9, "train.steps=5"), spec("e", "every", "ssa", 8)]
    assert overview.examples(known) == [("softmax and lssa on linear at nano", "overlay.html#run=a&run=c")]
