"""The site built from docs/: strict builds, pages that open from disk, and search."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import icl_lab

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"

for library in ("sphinx", "myst_nb", "furo"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'icl_lab[docs]'")


def build(source, out):
    """Build as ``make docs`` does: a warning, such as a link that leads nowhere, fails."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(source), str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(DOCS, out)
    assert done.returncode == 0, done.stderr
    return out


def pages(site):
    sources = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("tutorials/*.ipynb"))]
    return [site / path.relative_to(DOCS).with_suffix(".html") for path in sources]


def test_every_page_is_built(site):
    assert [page.name for page in pages(site) if not page.exists()] == []
    assert len([page for page in pages(site) if page.parent.name == "tutorials"]) >= 4


def test_the_reference_has_every_public_name(site):
    """In the inventory too, by which other documentation links here."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        held = InventoryFile.load(file, "", lambda base, uri: uri)
    named = {name for kind, names in held.items() if kind.startswith("py:") for name in names}
    assert {f"icl_lab.{name}" for name in icl_lab.__all__} <= named
    bases = {
        "normalizers.base.Normalizer.weights",
        "tasks.base.Task.sample",
        "testing.tasks.an_address_repeats_its_draws",
    }
    assert {f"icl_lab.{name}" for name in bases} <= named


@pytest.mark.exhaustive
def test_dead_links_and_orphans_fail_the_build(tmp_path):
    """One build with all faults: each is a warning of its own, and a warning fails."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build"))
    (tmp_path / "icl_lab").symlink_to(DOCS.parent / "icl_lab")  # which pages name files of
    page = tmp_path / "docs" / "speed.md"
    faults = ["[x](no-such-page.md)", "[x](tasks.md#no-such-heading)", "![x](pictures/none.png)"]
    page.write_text("\n\n".join([page.read_text(), *faults]) + "\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    done = build(tmp_path / "docs", tmp_path / "site")
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    for complaint in ("no-such-page.md", "no-such-heading", "pictures/none.png", "lost.md"):
        assert sum(complaint in line for line in warnings) == 1, complaint
    assert len(warnings) == 4


def watched(new_tab, **options):
    """Opens a tab; returns it with the lists of what it will ask for and complain about."""
    tab = new_tab(**options)
    asked, complaints = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    return tab, asked, complaints


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "dark"), pytest.param(1400, "light", marks=pytest.mark.exhaustive)]
)
def test_pages_open_from_disk_without_requests(new_tab, site, width, scheme):
    tab, asked, complaints = watched(new_tab, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for page in pages(site):
        tab.goto(page.as_uri(), wait_until="load")
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == [], page.name
        assert complaints == [], page.name
        assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), page.name
        assert all(tab.evaluate("[...document.images].map(image => image.complete && image.naturalWidth > 300)"))
        assert tab.inner_text("h1").strip()
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 200
        assert dark == (scheme == "dark"), page.name
    tab.close()


def test_search_from_disk_finds_ssmax(new_tab, site):
    tab, _, complaints = watched(new_tab)
    tab.goto((site / "index.html").as_uri())
    tab.fill("input[name=q]", "ssmax")
    tab.press("input[name=q]", "Enter")
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_function("document.querySelector('#search-results').innerText.includes('Search finished')")
    found = tab.eval_on_selector_all("#search-results li a", "links => links.map(link => link.getAttribute('href'))")
    assert any(link.startswith("normalizers.html") for link in found)
    assert not any(link.startswith("cluster.html") for link in found)
    assert complaints == []
    tab.click("#search-results li a[href^='normalizers.html']")
    tab.wait_for_selector("h1")
    assert "Normalizers" in tab.inner_text("h1")
    tab.close()
