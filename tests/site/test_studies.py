"""Studies as they lie in folders: titles, findings, which files are copied."""

import pytest

from icl_lab.extras.site import overview, studies
from tests.site import made


def read(root, **more):
    return {study.place: study for study in studies.every({"own": root, **more}, root / "no-experiments")}


def test_what_is_no_study_is_left_out(tmp_path):
    made.study(tmp_path, "compare-x", "Found.")
    for name in ("runs/a", "evidence/b", "plain", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "notes.txt").write_text("x")
    (tmp_path / ".hidden" / "table.md").write_text("x")
    assert list(read(tmp_path)) == ["compare-x"]


def test_an_own_study_stands_before_the_repositorys(tmp_path):
    made.study(tmp_path / "mine", "compare-x", "Mine.")
    made.study(tmp_path / "theirs", "compare-x", "Theirs.")
    made.study(tmp_path / "theirs", "compare-y", "Theirs too.")
    found = read(tmp_path / "mine", evidence=tmp_path / "theirs")
    assert [(place, study.finding) for place, study in found.items()] == [
        ("compare-x", "Mine."), ("compare-y", "Theirs too."),
    ]  # fmt: skip


def test_an_experiment_has_the_title_of_its_file_or_its_place(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "made-up.toml").write_text(made.EXPERIMENT)
    of_file = ("experiment", "Made", "Somebody, 2025")
    places = {
        "experiments/made-up-lite2-0a1b2c": (*of_file, ("made-up", "lite2")),
        "experiments/made-up-smoke": (*of_file, ("made-up", "smoke")),
        "experiments/of-my-own": ("experiment", "of-my-own", "", ("", "")),
        "made-up-lite2": ("compare", "made-up-lite2", "", ("", "")),
    }
    for place, (_, title, *_) in places.items():
        made.study(tmp_path / "results", place, "# Heading\n\nFound." if title == "Made" else "Found.")
    found = studies.every({"own": tmp_path / "results"}, files)
    assert {study.place: (study.kind, study.title, study.paper, study.asked) for study in found} == places


def test_a_finding_is_about_what_was_found(tmp_path):
    above = "Task linear, preset lite, 3 training seeds."
    made.study(tmp_path, "a", f"{above}\n\nAnswers stop at 8.\n\nB: where they stay.\n", kind="boundary")
    made.study(tmp_path, "b", f"{above}\n\n### Over seeds\n\nMeans.\n\n| a |\n| --- |\n| 1 |\n", kind="boundary")
    made.study(tmp_path, "c", "Against softmax 0.5.\n\nNumbers are means.\n", kind="compare")
    told = {place: study.finding for place, study in read(tmp_path).items()}
    assert told == {"a": "Answers stop at 8.", "b": above, "c": "Against softmax 0.5."}


def test_no_finding_is_cut_before_its_answer(tmp_path):
    """In a long text sentences stay whole: neither a colon nor a number of characters ends one."""
    asked = "Against softmax, over 3 seeds, by the mean log error over sigma_f 2 to 10"
    answer = f"{asked}: no rule differs clearly. No difference beyond a factor 1.25: {'ssmax (0.975), ' * 30}lssa."
    made.study(tmp_path, "compare-x", f"{answer} The other one is inconclusive.\n\nNumbers are means.\n")
    first = f"One training seed decides nothing. In this one {'ssa errs 0.5, ' * 40}lssa 0.4."
    made.study(tmp_path, "compare-y", f"{first} Rest.\n\nNumbers are means.\n")
    made.study(tmp_path, "compare-z", f"{'ssa errs 0.5, ' * 40}lssa 0.4\n\nNumbers are means.\n")
    found = read(tmp_path)
    last = f"{'ssa errs 0.5, ' * 40}lssa 0.4"
    assert [study.finding for study in found.values()] == [answer, first, last]
    assert [row["told"] for row in overview.rows(made.none(), list(found.values()), [], [])] == [answer, first, last]


def test_links_and_large_files_are_not_copied_and_it_says_so(tmp_path, monkeypatch):
    folder = made.study(tmp_path, "compare-x", "Found.")
    (tmp_path / "secret.csv").write_text("secret")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "weights.safetensors").write_bytes(b"x")
    monkeypatch.setattr(studies, "LARGEST", 100)
    (folder / "large.csv").write_text("x" * 101)
    study = read(tmp_path)["compare-x"]
    assert {file.name for file in study.files} == {"table.md"} | {f.name for f in study.files if f.size <= 100}
    assert "link.csv" not in {file.source.name for file in study.files}
    assert any(why.startswith("link.csv: a link") for why in study.left_out)
    assert any(why.startswith("large.csv") for why in study.left_out)
    assert "weights.safetensors" not in str(study.files)


def test_a_link_to_a_folder_is_not_followed(tmp_path):
    made.study(tmp_path / "elsewhere", "inside", "Secret.")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "link").symlink_to(tmp_path / "elsewhere" / "inside")
    assert read(tmp_path / "results") == {}


@pytest.mark.parametrize(("name", "data"), [
    *(("study.json", data) for data in (b"\xff\xfe", b"{", b"[]")),
    ("table.md", b"\xff\xff"),
])  # fmt: skip
def test_nothing_of_a_damaged_study_is_shown(tmp_path, name, data):
    folder = made.study(tmp_path, "compare-x", "Found.")
    (folder / name).write_bytes(data)
    study = read(tmp_path)["compare-x"]
    assert name in study.damage
    assert (study.finding, study.sections, study.files) == ("", (), ())


@pytest.mark.parametrize("name", ["table.md", "comparison.csv"])
def test_nor_is_a_number_of_a_damaged_table(tmp_path, name):
    folder = made.study(tmp_path, "compare-x", "It errs 0.5.", files={"comparison.csv": "error\n0.5\n"})
    assert read(tmp_path)["compare-x"].finding == "It errs 0.5."
    (folder / name).write_text((folder / name).read_text().replace("0.5", "0.4"))
    study = read(tmp_path)["compare-x"]
    assert f"{folder / name} is damaged or edited" in study.damage
    assert (study.finding, study.sections, study.files) == ("", (), ())
    assert study.left_out == (f"all: {study.damage}",)
