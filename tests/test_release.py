"""What is released: versions and commits, extras, citations, the changelog."""

import ast
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import icl_lab
from icl_lab import normalizers, tasks
from icl_lab.base import version
from icl_lab.base.errors import RunFailed
from icl_lab.claims import ledger
from icl_lab.cli import citations
from icl_lab.cli.main import cli
from icl_lab.pipeline import sweep
from icl_lab.runs import card, extras
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_file_is_of_its_form():
    """The fields that CFF 1.2.0 demands, of the types that it demands."""
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "cff-version"} <= set(CITATION)
    assert CITATION["version"] == icl_lab.__version__
    assert CITATION["license"] == PROJECT["license"]
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(CITATION["date-released"]))
    for each in (CITATION, *CITATION["references"]):
        assert each["authors"]
        assert all({"name", "family-names"} & set(author) for author in each["authors"])
        assert each["title"]
    for reference in CITATION["references"]:
        assert reference["type"] == "article"
        assert isinstance(reference["year"], int)
        assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", reference["url"])


def test_the_papers_of_the_citation_file_are_those_of_parts():
    named = "\n".join(entry.paper for registry in REGISTRIES for entry in registry.entries())
    for reference in CITATION["references"]:
        assert reference["url"].rpartition("/")[2] in named


def imported():
    """Third-party modules that the package imports, as text."""
    names = set()
    for path in (ROOT / "icl_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"icl_lab"}


def test_what_is_required_is_what_is_imported():
    distributions = importlib.metadata.packages_distributions()
    used = {canonicalize_name(each) for name in imported() for each in distributions.get(name, [name])}
    core = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]}
    optional = {name: PROJECT["optional-dependencies"][name] for name in ("hf", "ray", "track", "notebook", "sklearn")}
    extra = {canonicalize_name(Requirement(each).name) for of in optional.values() for each in of}
    assert core - used == set()
    # Brought by a requirement, or taken as a user's own where it is there.
    brought = {"ipython", "markupsafe", "tokenizers", "huggingface-hub"}
    assert used - core - extra <= brought | {"wandb", "polars", "peft"}


def test_an_index_is_told_who_and_for_what():
    assert PROJECT["authors"] == CITATION["authors"]
    versions = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    classifiers = pytest.importorskip("trove_classifiers", reason="no list of classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= classifiers


@pytest.fixture(scope="module")
def hatch_build():
    pytest.importorskip("hatchling.build", reason="no hatchling to build with")
    found = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_an_index_gets_commands_that_an_installed_copy_has(hatch_build):
    text = """# A <!-- note -->
The first command installs (make). See [a page](docs/a.md), [[1]](docs/b.md#c) and [a paper](https://arxiv.org/abs/1).
<picture>
  <img src="a.png">
</picture>

A caption.

  <!-- a line -->
`make sweep TASK=linear ATTN="ssa softmax" ARGS="--all 1,-2"`, then `make claims`; `make experiment NAME=x SEEDS=3`.
"""
    installed = """# A
See a page, [1] and [a paper](https://arxiv.org/abs/1).
`icl-lab sweep --task linear --attn 'ssa softmax' --all 1,-2`, then `icl-lab claims`; `icl-lab experiment x --seeds 3`.
"""
    assert hatch_build.indexed(text) == installed


def test_nothing_in_readme_of_an_index_is_dead(hatch_build):
    text = hatch_build.indexed((ROOT / "README.md").read_text())
    assert re.findall(r"\]\((?!https://)|<picture|<!--|\bmake [a-z-]+", text) == []
    named = set(re.findall(r"icl-lab ([a-z][a-z-]+)", text))
    assert {"sweep", "compare", "claims", "evidence"} <= named <= set(cli.commands)
    assert "class Square(WarpedScore)" in text


def test_the_changelog_has_the_version():
    heads = re.findall(r"^## (.*)$", CHANGES, re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert heads[1] == f"{icl_lab.__version__} ({CITATION['date-released']})"


def test_type_checkers_of_users_read_its_types():
    """PEP 561: without the marker they take everything for ``Any``."""
    assert importlib.resources.files("icl_lab").joinpath("py.typed").is_file()


def test_every_extra_says_what_it_is_for():
    assert set(extras.PURPOSES) == set(PROJECT["optional-dependencies"])
    assert extras.requirements().keys() == PROJECT["optional-dependencies"].keys()
    for held in ("transformers", "scikit-learn"):  # dev holds hf and sklearn
        assert any(line.startswith(held) for line in extras.requirements()["dev"])


def pins(name):
    """Versions by canonical names of the lines ``name==version`` of a file, with or without a marker and hashes."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def needed(requirement, seen):
    """Yield a requirement and, of what is installed, all that it needs here, but for the CUDA of a torch."""
    yield requirement
    extras_of = requirement.extras | {""}
    key = canonicalize_name(requirement.name), frozenset(extras_of)
    if key in seen:
        return
    seen.add(key)
    try:
        lines = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for below in map(Requirement, lines):
        met = below.marker is None or any(below.marker.evaluate({"extra": extra}) for extra in extras_of)
        if met and not re.match("nvidia-|cuda-|triton", below.name):
            yield from needed(below, seen)


def test_constraints_meet_every_requirement():
    asked = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    known, seen = pins("constraints.txt"), set()
    wanted = [each for line in asked for each in needed(Requirement(line), seen) if each.name != "icl_lab"]
    assert len(seen) > len(asked)
    for each in wanted:
        version = known.get(canonicalize_name(each.name))
        assert version, f"constraints.txt has no line for {each}"
        assert each.specifier.contains(version, prereleases=True), f"constraints.txt has {version} for {each}"


@pytest.mark.parametrize(
    ("name", "build", "others"),
    [("requirements.lock", "", "nvidia-|cuda-|triton$|colorama$"), ("requirements-cpu.lock", "+cpu", "$^")],
)
def test_a_lock_has_the_constraints_with_hashes(name, build, others):
    """``make lock`` writes them anew; versions that a lock alone names are of CUDA, and of other systems."""
    lines = (ROOT / name).read_text()
    locked, known = pins(name), pins("constraints.txt")
    assert locked["torch"] == known["torch"] + build
    locked["torch"] = known["torch"]
    asked = [*PROJECT["dependencies"], "hatchling"]
    assert {canonicalize_name(Requirement(line).name) for line in asked} <= set(locked)
    assert locked.items() >= {(name, known[name]) for name in set(known) & set(locked)}
    alone = set(locked) - set(known)
    assert all(re.match(others, name) for name in alone), alone
    assert len(re.findall(r"^[a-z].*\\\n    --hash=sha256:[0-9a-f]{64}", lines, re.MULTILINE)) == len(locked)
    assert "://" not in lines


def test_extras_are_read_from_what_is_installed(monkeypatch, tmp_path):
    """Without a checkout the metadata of the distribution say the same."""
    told = Message()
    told["Provides-Extra"] = "hf"
    told["Provides-Extra"] = "dev"
    lines = "torch>=2.6", "transformers<6,>=5; extra == 'hf'", "icl-lab[hf]; extra == 'dev'", 'ruff; extra == "dev"'
    for line in lines:
        told["Requires-Dist"] = line
    monkeypatch.setattr(extras, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(extras.importlib.metadata, "metadata", lambda name: told)
    assert extras.requirements() == {"hf": ["transformers<6,>=5"], "dev": ["transformers<6,>=5", "ruff"]}


def test_what_is_missing_is_told(run, monkeypatch):
    monkeypatch.setattr(extras, "requirements", lambda: {"hf": ["torch>=2", "no-such-package>=1"], "ray": ["torch"]})
    out, _ = run.ok("doctor")
    missing = "hf: missing no-such-package>=1: pip install 'icl_lab[hf]' (for normalizers inside Hugging Face"
    assert f"extra     {missing}" in out
    assert "extra     ray: there (for --engine ray" in out
    assert "torch" in out
    assert "threads" in out


def test_the_version_says_the_commit(run):
    out, _ = run.ok("--version")
    assert out == f"icl-lab, version {icl_lab.__version__}, commit {version.commit()}\n"
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", version.commit())


def commit_all(folder):
    """Make a repository of a folder, with all that is in it in one commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)


def test_a_package_that_was_built_says_what_it_was_built_from(tmp_path):
    (tmp_path / "version.py").write_text("")
    commit_all(tmp_path)
    found = version.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12}", found)
    (tmp_path / "commit.txt").write_text("0123456789ab\n")
    assert version.commit(tmp_path) == "0123456789ab"


def test_inside_somebody_elses_checkout_the_commit_is_unknown(tmp_path):
    """A virtual environment often lies inside the checkout of something else."""
    (tmp_path / "mine.txt").write_text("")
    commit_all(tmp_path)
    place = tmp_path / "site"
    (place / "base").mkdir(parents=True)
    (place / "base" / "version.py").write_text((ROOT / "icl_lab" / "base" / "version.py").read_text())
    words = [sys.executable, "-c", "from base import version; print(version.commit())"]
    assert subprocess.run(words, cwd=place, capture_output=True, text=True, check=True).stdout == "unknown\n"


REGISTRIES = [normalizers.registry, normalizers.wrappers, tasks.registry]


@pytest.mark.parametrize("name", [name for registry in REGISTRIES for name in registry.names()])
def test_every_arxiv_number_of_a_source_is_cited(name):
    source = next(entry.paper for registry in REGISTRIES for entry in registry.entries() if entry.name == name)
    found = citations.of([source])
    assert [paper.arxiv for paper in found] == list(dict.fromkeys(re.findall(r"arXiv (\d{4}\.\d{5})", source)))
    for paper in found:
        assert paper.words
        assert re.search(r"^  (author|title) = \{[^{}]+\},$", paper.bibtex, re.MULTILINE)
        assert paper.bibtex.count("{") == paper.bibtex.count("}")


def test_papers_are_printed_as_bibtex(run):
    out, _ = run.ok("cite", "ssa:n=2+reweight:p=3", "softpick", "linear")
    assert re.findall(r"@misc\{arxiv([\d.]+)", out) == ["2508.14685", "2501.13428", "2504.20966", "2208.01066"]
    assert "author = {Naim and Bhar and Bolte and Asher}," in out
    assert "title = {Softpick}," in out
    assert f"version {icl_lab.__version__}" in run.ok("cite")[0]
    assert "no paper with an arXiv number" in run.ok("cite", "llama4")[1]
    assert "Did you mean 'ssa'?" in run.refused("cite", "ssaa")[1]


@pytest.mark.slow
def test_the_card_of_a_model(tiny, lab):
    sweep(tiny(attn="ssa"), 1, lab)
    stored = lab.store.run(tiny(attn="ssa"), 1)
    out = card.text(stored)
    assert stored.env()["model_sha256"] in out
    assert f'icl.find("linear/ssa/smoke-{stored.spec.hash}", seed=1)' in out
    assert "| `ssa` |" in out.partition("training conditions")[2]
    (head,) = yaml.safe_load_all(out.split("---")[1])
    assert head["license"] == "mit"
    (stored.folder / "model.safetensors").unlink()
    with pytest.raises(RunFailed, match="keeps no weights"):
        card.text(stored)


def built(kind, source, place):
    """Build a wheel or a source distribution without the network; return its file."""
    place.mkdir()
    line = f"from hatchling.build import build_{kind}; build_{kind}({str(place)!r})"
    done = subprocess.run([sys.executable, "-c", line], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = place.iterdir()
    return file


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel that is built from the source distribution of a checkout, unpacked; and the checkout's commit."""
    pytest.importorskip("hatchling.build", reason="no hatchling to build with")
    place = tmp_path_factory.mktemp("release")
    source = place / "source"
    words = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", ":!results"]
    tracked = subprocess.run(words, capture_output=True, text=True, check=True)
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    commit_all(source)
    commit = version.commit(source)
    shutil.unpack_archive(built("sdist", source, place / "sdist"), place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    with zipfile.ZipFile(built("wheel", unpacked, place / "wheel")) as archive:
        archive.extractall(place / "site")
    assert not (source / "icl_lab" / "commit.txt").exists()  # nothing is left in the checkout
    return place / "site", commit, unpacked


def command(installed, folder, *words):
    """Types a command in a folder where nothing but the installed package is."""
    env = {name: value for name, value in os.environ.items() if name != "ICL_LAB_EVIDENCE"}
    env["PYTHONPATH"] = str(installed[0])
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


SMALL = "train.steps=5 train.batch=8 model.width=16 model.heads=2 test.prompts=64 test.axes.length=5,12"
TASK = ["--task", "linear", "--preset", "smoke", "--set", SMALL]


@pytest.mark.exhaustive
def test_a_wheel_of_an_sdist_knows_commit_and_experiments(installed, tmp_path):
    site, commit, unpacked = installed
    pages = [ROOT / "icl_lab" / "extras" / "site" / folder for folder in ("templates", "assets", "vendor")]
    brought = [*(path for folder in pages for path in folder.iterdir()), ROOT / "icl_lab" / "py.typed"]
    assert any("LICENSE" in path.name for path in brought)
    assert all((site / path.relative_to(ROOT)).exists() for path in brought)
    files = [*(ROOT / "experiments").rglob("*.toml"), ROOT / "experiments" / "suite" / "version.txt"]
    assert all((site / "icl_lab" / path.relative_to(ROOT)).exists() for path in files)
    told = command(installed, tmp_path, "-m", "icl_lab", "--version")
    assert told == f"icl-lab, version {icl_lab.__version__}, commit {commit}\n"
    listed = command(installed, tmp_path, "-m", "icl_lab", "list", "experiments")
    names = {path.stem for path in (ROOT / "experiments").glob("*.toml")}
    assert {line.partition(":")[0] for line in listed.splitlines()[:-1]} == names
    assert not (unpacked / "results").exists()
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "tests", "docs"} <= {path.name for path in unpacked.iterdir()}
    # Extras are told from the metadata of what is installed.
    line = "from icl_lab.runs import extras; print(extras.PROJECT.exists(), sorted(extras.requirements()))"
    assert command(installed, tmp_path, "-c", line) == f"False {sorted(extras.requirements())}\n"


# Types commands one after another in one process: torch is imported once.
TYPED = """
import json, sys
from icl_lab.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["icl-lab", *words]
    try:
        main()
    except SystemExit as left:
        assert not left.code, (words, left.code)
"""


def typed(installed, folder, *commands):
    """Types commands in a folder where nothing but the installed package is; each must end well."""
    return command(installed, folder, "-c", TYPED, json.dumps(commands))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_an_installed_package_works_in_an_empty_folder(installed, tmp_path):
    lab = ["-m", "icl_lab"]
    typed(installed, tmp_path, ["list", "normalizers"], ["list", "runs"])
    assert list(tmp_path.iterdir()) == []
    typed(
        installed,
        tmp_path,
        ["sweep", "--attn", "ssa", *TASK],
        ["compare", "--attn", "softmax", "--attn", "ssa", "--seeds", "2", "--jobs", "2", *TASK],
        ["attention", "--attn", "ssa", "--prompt", "1,2,3", "--means", "0", *TASK],
        ["theory", "--attn", "softmax", "--rows", "20", "--keys", "8"],
        ["claims", "--preset", "smoke"],
        ["verify"],
        ["check-part", "ssa"],
        ["cite", "ssa"],
        ["doctor"],
    )
    (run,) = (tmp_path / "results").glob("runs/linear/ssa/smoke-*/seed-0")
    (study,) = (tmp_path / "results").glob("compare-*")
    assert "toprule" in command(installed, tmp_path, *lab, "export", str(study.relative_to(tmp_path)))
    command(installed, tmp_path, *lab, "publish", str(run.relative_to(tmp_path)), "--to", str(run / "published"))
    assert "## Use" in (run / "published" / "README.md").read_text()
    line = "import icl_lab as icl; print(icl.find('linear/ssa/smoke').hash, icl.__file__)"
    told = command(installed, tmp_path, "-c", line).split()
    assert run.parent.name == f"smoke-{told[0]}"
    assert Path(told[1]).is_relative_to(installed[0])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.exhaustive
def test_an_installed_package_reads_what_it_fetched(installed, tmp_path, monkeypatch):
    """README's comparison and a claim, without a training: as the repository's own record has them."""
    from docs import release

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    archive = tmp_path / release.NAME
    archive.write_bytes(release.packed(ROOT))
    fetch = ["evidence", "fetch", "--from", str(archive), "--sha256", release.sha256(archive.read_bytes())]
    compare = ["compare", "--task", "linear", "--attn", "softmax ssa", "--seeds", "3", "--dry-run"]
    out = typed(installed, tmp_path / "here", fetch, ["claims", "ssa-table1", "--all"], compare)
    record = ledger.stored(Store(ROOT / "results", Archive(ROOT / "results" / "evidence")))["ssa-table1", "lite2"]
    (known,) = (each for each in record if each.claim == "SSA errs less than softmax far from training")
    assert known.interval in out
    assert out.count("\ndone  results/runs/linear/") == 6
    assert list((tmp_path / "here").iterdir()) == []
