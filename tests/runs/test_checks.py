"""What stands in a folder without a manifest is that run's: copied, cut and edited files are refused in one line."""

import shutil
import subprocess

import pytest
import torch

from icl_lab import pipeline as sweeping
from icl_lab.base.errors import RunFailed
from icl_lab.extras.site import specifications
from icl_lab.runs import environment
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.runs.verify import everything

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_pictures")]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A results folder with one run, swept once for all tests here."""
    folder = tmp_path_factory.mktemp("swept") / "results"
    small = ["train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
    spec = resolve("linear", "softmax", "smoke", [*small, "test.axes.length=5,12"])  # as ``tiny`` has it
    sweeping.sweep(spec, 0, Lab(Store(folder), torch.device("cpu"), lambda text: None))
    return folder


@pytest.fixture
def done(swept, tiny, lab):
    """A finished run as it was kept before there were manifests."""
    shutil.copytree(swept, lab.store.root)
    run = lab.store.run(tiny(), 0)
    (run.folder / "manifest.json").unlink()
    return run


def change(run, old, new):
    path = run.folder / "grid.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (",softmax,", ",ssa,", "attn is ssa, not softmax"),
        ("linear,softmax", "every,softmax", "task is every, not linear"),
        (",smoke,", ",lite,", "preset is lite, not smoke"),
    ],
)
def test_a_grid_of_another_run_is_refused(done, old, new, named):
    change(done, old, new)
    with pytest.raises(RunFailed, match=f"{named}; delete its folder, or add --retrain"):
        done.grid()


def test_a_grid_of_another_specification_or_seed_is_refused(done, lab, tiny):
    other = lab.store.run(tiny("linear", "softmax", "train.steps=61"), 0)
    other.folder.mkdir(parents=True)
    (other.folder / "grid.csv").write_bytes((done.folder / "grid.csv").read_bytes())
    with pytest.raises(RunFailed, match=f"spec is {done.spec.hash}, not {other.spec.hash}"):
        other.grid()
    next_seed = lab.store.run(tiny(), 1)
    next_seed.folder.mkdir(parents=True)
    (next_seed.folder / "grid.csv").write_bytes((done.folder / "grid.csv").read_bytes())
    with pytest.raises(RunFailed, match="seed is 0, not 1"):
        next_seed.grid()


def test_missing_and_repeated_rows_are_refused(done):
    path = done.folder / "grid.csv"
    head, *rows = path.read_text().splitlines(keepends=True)
    for kept in (rows[:-1], rows[1:], [*rows, rows[0]], rows[: len(rows) // 2], []):
        path.write_text("".join([head, *kept]))
        with pytest.raises(RunFailed, match="cut short or has rows twice"):
            done.grid()
    for text in ("", "task,attn\n", "no grid at all"):
        path.write_text(text)
        with pytest.raises(RunFailed, match=r"grid\.csv cannot be read"):
            done.grid()


def test_an_edited_headline_digit_is_refused(done):
    grid, _ = done.measured()  # a sound run passes
    cell = grid.frame["attn"].eq("softmax") & grid.frame["metric"].eq("mse-code")
    grid.frame.loc[cell.idxmax(), "value"] *= 1.001
    (done.folder / "grid.csv").write_text(grid.csv())
    assert done.grid()
    with pytest.raises(RunFailed, match=r"does not agree with errors\.safetensors at sigma_x=1, sigma_f=1, length=5"):
        done.measured()


def test_errors_of_other_cells_are_refused(done):
    path, errors = done.folder / "errors.safetensors", done.errors()
    first = next(iter(errors.cells))
    kept = errors.cells.pop(first)
    path.write_bytes(errors.encoded())
    with pytest.raises(RunFailed, match=r"grid\.csv has a cell without errors beside it: no cell .*'length': 5"):
        done.measured()
    errors.cells[first] = kept
    errors.axes[0] = "delta"
    path.write_bytes(errors.encoded())
    with pytest.raises(RunFailed, match="has a cell without errors beside it"):
        done.measured()


def test_an_altered_specification_is_refused(done):
    path = done.folder / "spec.json"
    path.write_text(path.read_text().replace('"heads": 2', '"heads": 4'))
    store = Store(done.folder.parents[4])
    with pytest.raises(RunFailed, match=f"its folder is named for: .* the folder says smoke-{done.spec.hash}"):
        store.at(done.folder)
    with pytest.raises(RunFailed):
        list(store.runs())


def test_odd_folders_are_named_and_passed_over(done, tmp_path):
    parent = done.folder.parent
    for name, data in {"seed-0-old": b"{}", "seed-²": b"{}", "seed-7": b"\xff\xfe", "seed-8": b"{"}.items():
        (parent / name).mkdir()
        (parent / name / "spec.json").write_bytes(data)
    (parent / "seed-9" / "spec.json").mkdir(parents=True)  # read as another user's file is: not at all
    store, said = Store(done.folder.parents[4]), []
    assert [run.key for run in store.runs(said.append)] == [done.key]
    assert len(said) == 5
    assert all("move" in line for line in said)
    assert f"{parent / 'seed-0-old'} is not called seed-K as the folder of a run is; move it away." in said
    with pytest.raises(RunFailed, match="move"):
        list(store.runs())
    assert set(store.seeds(done.spec)) == {0, 7, 8, 9}


def test_an_odd_run_does_not_end_the_commands_that_read_all(done, run):
    root, odd = done.folder.parents[4], done.folder.with_name("seed-9") / "spec.json"
    odd.mkdir(parents=True)
    for words in (("list", "runs", "--results", str(root)), ("verify", str(root))):
        _, out, err = run(*words)
        assert f"{odd} cannot be read: Is a directory" in out + err, words
    assert "seed 0 finished" in run("list", "runs", "--results", str(root))[1]
    shown, damages = specifications.every(Store(root))
    assert len(shown) == len(damages) == 1


@pytest.mark.parametrize("listed", [True, False])
def test_a_folder_in_the_place_of_a_file_is_named(swept, tiny, lab, run, listed):
    shutil.copytree(swept, lab.store.root)
    root, done = lab.store.root, lab.store.run(tiny(), 0)
    if not listed:
        (done.folder / "manifest.json").unlink()
    (done.folder / "history.csv").unlink()
    (done.folder / "history.csv").mkdir()
    (found,) = everything(root)
    assert (found.state, found.run) == ("damaged", done)
    assert f"{done.folder / 'history.csv'} cannot be read: Is a directory" in found.why


def test_an_odd_sibling_does_not_stop_a_run(done, lab, tiny):
    sibling = done.folder.parents[1] / "smoke-00000000" / "seed-0"
    sibling.mkdir(parents=True)
    (sibling / "spec.json").write_bytes(b"\xff\xfe")
    (sibling / "model.safetensors").write_bytes(b"weights")
    sweeping.sweep(tiny("linear", "softmax", "test.axes.length=6"), 0, lab)
    assert any("smoke-00000000" in line for line in lab.said)
    assert any("trained alike" in line for line in lab.said)


def test_changed_results_do_not_make_a_commit_dirty(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    (tmp_path / "results").mkdir()
    for name in ("results/table.md", "code.py"):
        (tmp_path / name).write_text("one")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    clean = environment.commit(tmp_path)
    assert len(clean) == 12
    (tmp_path / "results" / "table.md").write_text("two")
    (tmp_path / "results" / "new.md").write_text("three")
    assert environment.commit(tmp_path) == clean
    (tmp_path / "code.py").write_text("two")
    assert environment.commit(tmp_path) == f"{clean}-dirty"
