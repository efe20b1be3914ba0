"""Small runs, what is seen of them, and their pages in a browser that reaches no network."""

import pytest
import torch

from icl_lab.analyses import runner
from icl_lab.analyses.attention import AttentionMaps, page
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

SMALL = ["train.steps=5", "train.batch=8", "model.width=16", "model.heads=2", "model.layers=2"]


@pytest.fixture
def runs_of(tiny, lab):
    """Return runs of some normalizers that train in a moment."""

    def build(*rules, task="every", settings=()):
        return [lab.store.run(tiny(task, rule, "train.steps=4", *settings), 0) for rule in rules]

    return build


@pytest.fixture
def see(runs_of, lab):
    """Return what the analysis sees of some normalizers on a prompt."""

    def build(*rules, text="1,-2,3,70", task="every", settings=(), means=0, live=0, **options):
        runs = runs_of(*rules, task=task, settings=settings)
        return runner.ask(AttentionMaps(prompt=text, means=means, live=live, **options), runner.labels(runs), lab)

    return build


@pytest.fixture
def sharpen(monkeypatch):
    """Make scores large enough that sparse normalizers give zeros."""

    def call():
        load_or_train = runner.load_or_train

        def sharp(run, lab):
            model = load_or_train(run, lab)
            with torch.no_grad():
                model.blocks[0].attention.qkv.weight *= 30
            return model

        monkeypatch.setattr(runner, "load_or_train", sharp)

    return call


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory):
    """A laboratory that the pages share."""
    store = Store(tmp_path_factory.mktemp("results"))
    return Lab(store, torch.device("cpu"), lambda text: None, command="icl-lab attention")


@pytest.fixture(scope="session")
def look(laboratory):
    """Return what is seen of some normalizers, with two layers and two heads, in the laboratory of the pages."""

    def build(*rules, text="1,-2,3,70", task="every", means=2, settings=(), live=0, **options):
        runs = [laboratory.store.run(resolve(task, rule, "smoke", [*SMALL, *settings]), 0) for rule in rules]
        asked = AttentionMaps(prompt=text, means=means, live=live, **options)
        return runner.ask(asked, runner.labels(runs), laboratory)

    return build


@pytest.fixture(scope="session")
def write():
    """Write the page of what was seen."""

    def build(found, path):
        path.write_text(page.page(found, "Made here."))
        return path

    return build


@pytest.fixture(scope="session")
def pair(look, write, laboratory):
    """Softmax and SSA on the prompt of the paper's Figure 2, and where their page is."""
    found = look("softmax", "ssa")
    return found, write(found, laboratory.store.root / "pair.html")


@pytest.fixture(scope="session")
def long(look, write, laboratory):
    """The same normalizers on a prompt of 200 tokens."""
    found = look("softmax", "ssa", text="random:length=100", means=0)
    return found, write(found, laboratory.store.root / "long.html")


@pytest.fixture
def visit(new_tab):
    """Opens a page; afterwards nothing was asked of any network and no script has failed."""
    tabs, asked, complaints = [], [], []

    def call(path, hash="", **options):
        tab = new_tab(**{"viewport": {"width": 1100, "height": 900}, **options})
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.goto(path.as_uri() + hash, wait_until="load")
        tabs.append(tab)
        return tab

    yield call
    for tab in tabs:
        tab.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert complaints == []


@pytest.fixture
def state():
    """Read what the address of a page keeps."""
    return lambda tab: dict(pair.split("=") for pair in tab.evaluate("location.hash.slice(1)").split("&"))


@pytest.fixture
def download():
    """Click a button of the exports; return the name and the bytes of the file."""

    def call(tab, kind):
        with tab.expect_download() as caught:
            tab.click(f"#{kind}")
        return caught.value.suggested_filename, caught.value.path().read_bytes()

    return call


@pytest.fixture
def point():
    """Move the pointer to a cell of a large map, or clicks it."""

    def call(tab, run, query, key, act="hover"):
        place = f"[m.left + (m.keys.indexOf({key}) + 0.5) * m.side, m.top + ({query} - frame().first + 0.5) * m.side]"
        x, y = tab.evaluate(f"(m => {place})(maps[{run}])")
        getattr(tab.locator("#maps canvas").nth(run), act)(position={"x": x, "y": y})

    return call
