"""What is released: versions and commits, extras, citations, the changelog."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import icl_lab
from icl_lab import citations, extras, normalizers, tasks, version

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


def test_the_changelog_has_the_version():
    heads = re.findall(r"^## (.*)$", CHANGES, re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert heads[1] == f"{icl_lab.__version__} ({CITATION['date-released']})"


def test_every_extra_says_what_it_is_for():
    assert set(extras.PURPOSES) == set(PROJECT["optional-dependencies"])
    assert extras.requirements().keys() == PROJECT["optional-dependencies"].keys()
    assert any(line.startswith("transformers") for line in extras.requirements()["dev"])  # dev holds hf


def test_extras_are_read_from_what_is_installed(monkeypatch, tmp_path):
    """Without a checkout the metadata of the distribution say the same."""
    from email.message import Message

    told = Message()
    told["Provides-Extra"] = "hf"
    told["Provides-Extra"] = "dev"
    for line in (
        "torch>=2.6",
        "transformers<6,>=5; extra == 'hf'",
        "icl-lab[hf]; extra == 'dev'",
        'ruff; extra == "dev"',
    ):
        told["Requires-Dist"] = line
    monkeypatch.setattr(extras, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(extras.importlib.metadata, "metadata", lambda name: told)
    assert extras.requirements() == {"hf": ["transformers<6,>=5"], "dev": ["transformers<6,>=5", "ruff"]}


def test_what_is_missing_is_told(run, monkeypatch):
    monkeypatch.setattr(extras, "requirements", lambda: {"hf": ["torch>=2", "no-such-package>=1"], "ray": ["torch"]})
    code, out, _ = run("doctor")
    assert code == 0
    assert "extra     hf: missing no-such-package>=1: pip install 'icl_lab[hf]' (for rules inside Hugging Face" in out
    assert "extra     ray: there (for --engine ray" in out


def test_the_version_says_the_commit(run):
    code, out, _ = run("--version")
    assert (code, out) == (0, f"icl-lab, version {icl_lab.__version__}, commit {version.commit()}\n")
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", version.commit())


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words], check=True, capture_output=True
    )


def test_a_package_that_was_built_says_what_it_was_built_from(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "version.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    found = version.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12}", found)
    (tmp_path / "commit.txt").write_text("0123456789ab\n")
    assert version.commit(tmp_path) == "0123456789ab"


def test_inside_somebody_elses_checkout_the_commit_is_unknown(tmp_path):
    """A virtual environment often lies inside the checkout of something else."""
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.txt").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    place = tmp_path / "site"
    place.mkdir()
    (place / "version.py").write_text((ROOT / "icl_lab" / "version.py").read_text())
    told = subprocess.run(
        [sys.executable, "-c", "import version; print(version.commit())"],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "unknown\n"


REGISTRIES = [normalizers.registry, normalizers.wrappers, tasks.registry]


@pytest.mark.parametrize("name", [name for registry in REGISTRIES for name in registry.names()])
def test_every_arxiv_number_of_a_source_is_cited(name):
    source = next(entry.paper for registry in REGISTRIES for entry in registry.entries() if entry.name == name)
    found = citations.of(REGISTRIES, [name])
    assert [paper.arxiv for paper in found] == list(dict.fromkeys(re.findall(r"arXiv (\d{4}\.\d{5})", source)))
    for paper in found:
        assert paper.words
        assert re.search(r"^  (author|title) = \{[^{}]+\},$", paper.bibtex, re.MULTILINE)
        assert paper.bibtex.count("{") == paper.bibtex.count("}")


def test_papers_are_printed_as_bibtex(run):
    code, out, _ = run("cite", "ssa:n=2+reweight:p=3", "softpick", "linear")
    assert code == 0
    assert re.findall(r"@misc\{arxiv([\d.]+)", out) == ["2508.14685", "2501.13428", "2504.20966", "2208.01066"]
    assert "author = {Naim and Bhar and Bolte and Asher}," in out
    assert "title = {Softpick}," in out
    code, out, _ = run("cite")
    assert (code, f"version {icl_lab.__version__}" in out) == (0, True)
    code, _, err = run("cite", "llama4")
    assert (code, "no paper with an arXiv number" in err) == (0, True)
    code, _, err = run("cite", "ssaa")
    assert (code, "Did you mean 'ssa'?" in err) == (2, True)


def test_the_card_of_a_model(run, tiny, lab, monkeypatch):
    from icl_lab.pipeline import sweep

    sweep(tiny(attn="ssa"), 1, lab)
    stored = lab.store.run(tiny(attn="ssa"), 1)
    code, out, err = run("card", str(stored.folder), results=lab.store.root)
    assert code == 0, err
    assert stored.env()["model_sha256"] in out
    assert f'icl.find("linear/ssa/smoke-{stored.spec.hash}", seed=1)' in out
    assert "| `ssa` |" in out.partition("training conditions")[2]
    (head,) = yaml.safe_load_all(out.split("---")[1])
    assert head["license"] == "mit"
    code, out, _ = run("card", str(stored.folder), "--write", results=lab.store.root)
    assert (code, out) == (0, f"wrote {stored.folder / 'README.md'}\n")
    (stored.folder / "model.safetensors").unlink()
    code, _, err = run("card", str(stored.folder), results=lab.store.root)
    assert (code, "keeps no weights" in err) == (1, True)


def test_a_card_of_what_is_no_run(run, tmp_path):
    code, _, err = run("card", str(tmp_path))
    assert code == 2
    assert "No run is called" in err
