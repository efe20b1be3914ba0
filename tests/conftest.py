"""One thread for everything: tiny tensors gain nothing from two, and results must not hang on the machine."""

import asyncio
import contextlib
import functools
import gc
import importlib.util
import math
import os
import shutil
import signal
import sys
from pathlib import Path
from zlib import crc32

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["ICL_LAB_EVIDENCE"] = ""  # tests train what they ask for; those about the evidence name theirs

import pytest
import torch

torch.set_num_threads(1)
# Of `make test ARGS=..`: the makes that tests start are told none of it.
for name in ["ARGS", "PYTHON", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"]:
    os.environ.pop(name, None)

collect_ignore = ["examples"]  # tasks from outside: a test that wants them registers them

# Commands that tests let write or read a results folder: never the repository's own.
RESULTS = (
    *("sweep", "compare", "deviant", "doctor", "needle", "law", "learning"),
    *("per-position", "context"),
    "site",
    *("theory", "saturation", "probe", "probe-pairs", "heads", "ablate", "boundary", "attention", "report"),
    "equivariance",
)


gc.disable()  # ten thousand tests are collected, and looked through by no collection of garbage after it


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Each exhaustive test belongs to an eighth of them by its name alone: CI takes one eighth a commit."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.path.name == "api.py":
            item.add_marker("slow")  # its examples train
        if item.get_closest_marker("exhaustive"):  # and slow, whether it says so or not
            item.add_marker("slow")
            item.add_marker(f"eighth{crc32(item.nodeid.encode()) % 8}")
    items.sort(key=_allowed, reverse=True)  # the longest first, so that none is left when all others are done


def _allowed(item):
    """Seconds that a test asks for beyond the usual; 0 is without end."""
    marker = item.get_closest_marker("timeout")
    return marker.args[0] or math.inf if marker else 0


@pytest.fixture(scope="session", autouse=True)
def _asked_once():
    """The commit of this checkout and the versions of packages stay as they are while tests run."""
    from icl_lab.base import version
    from icl_lab.runs import environment

    git = version._git
    here = functools.cache(functools.partial(git, version.PACKAGE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(version, "_git", lambda at, *words: here(*words) if at == version.PACKAGE else git(at, *words))
        patch.setattr(environment, "versions", functools.cache(environment.versions))
        yield


@pytest.fixture(autouse=True)
def _loop_of_the_browser_alone(request):
    """Playwright's event loop counts as running until the browser is closed; tests without it may start their own."""
    loop = asyncio._get_running_loop()
    if "browser" not in request.fixturenames:
        asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop or asyncio._get_running_loop())


@pytest.fixture
def tiny():
    """A specification that trains in a second: one layer, a few steps, a grid of four cells."""
    from icl_lab.runs.spec import resolve

    def build(task="linear", attn="softmax", *settings):
        small = ["train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
        return resolve(task, attn, "smoke", [*small, "test.axes.length=5,12", *settings])

    return build


@pytest.fixture
def lab(tmp_path):
    """A laboratory with its own results folder; what it says is collected in ``said``."""
    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Store

    said = []
    laboratory = Lab(Store(tmp_path / "results"), torch.device("cpu"), said.append)
    object.__setattr__(laboratory, "said", said)
    return laboratory


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command line in this process, with its own results folder, and returns (code, stdout, stderr).

    ``run.ok``, ``run.failed`` and ``run.refused`` expect the exit codes 0, 1 and 2, and return (stdout, stderr).
    """
    from icl_lab.cli.main import main

    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    }

    def call(*words, results=tmp_path / "results"):
        extra = ["--results", str(results)] if words and words[0] in RESULTS and results is not None else []
        monkeypatch.setattr(sys, "argv", ["icl-lab", *words, *extra])
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def ends(expected, *words, **named):
        code, out, err = call(*words, **named)
        assert (code, "Traceback" in err) == (expected, False), err
        return out, err

    for expected, name in enumerate(("ok", "failed", "refused")):
        setattr(call, name, functools.partial(ends, expected))
    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def one_pixel():
    """Within it each picture is drawn, and written as one pixel, which takes seconds off a page."""
    from tests.one_pixel import one_pixel_pictures

    @contextlib.contextmanager
    def within():
        with pytest.MonkeyPatch.context() as patch:
            one_pixel_pictures(patch.setattr)
            yield

    return within


@pytest.fixture
def quick_pictures(one_pixel):
    """For tests that look at no picture."""
    with one_pixel():
        yield


@pytest.fixture
def own_parts(monkeypatch):
    """Parts that a test registers or imports are forgotten after it."""
    from icl_lab import analyses, normalizers, tasks
    from icl_lab.base import outside
    from icl_lab.model import positions

    modules = (normalizers, tasks, analyses, positions)
    for registry in (*(module.registry for module in modules), normalizers.wrappers):
        registry.names()  # the built-in parts are registered once a process, and have to stay
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))
        monkeypatch.setattr(registry, "_sources", dict(registry._sources))
    for name in ("_loaded", "_searched", "_homes"):
        monkeypatch.setattr(outside, name, {})
    before = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(before[0]):
        if name.startswith(("imported_", "mypackage")):
            del sys.modules[name]
    sys.path[:] = before[1]


@pytest.fixture
def outside():
    """The example tasks, registered as long as a test runs, so that no other test meets them."""
    from icl_lab.tasks import registry

    before = set(registry.names())
    for path in sorted((Path(__file__).parent / "examples").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    yield
    for name in set(registry.names()) - before:
        del registry._parts[name]
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, without the network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or pytest.skip("no chromium on this machine")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def watched(new_tab):
    """Opens an address at a width and in a colour scheme; returns the tab, what it asked for and its complaints."""
    tabs = []

    def call(address, width=1280, scheme="light"):
        tab = new_tab(viewport={"width": width, "height": 800}, color_scheme=scheme)
        tabs.append(tab)
        asked, complaints = [], []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.goto(address, wait_until="load")
        return tab, asked, complaints

    yield call
    for tab in tabs:
        tab.close()


@pytest.fixture(scope="session")
def new_tab(browser):
    """Opens a tab. Those of the same options share a context, which takes as long to make as a page to open."""
    contexts = {}

    def call(**options):
        key = repr(sorted(options.items()))
        if key not in contexts:
            contexts[key] = browser.new_context(**options)
        return contexts[key].new_page()

    return call
