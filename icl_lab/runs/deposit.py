"""What is taken from a run's folder into the evidence, once it has been checked; no damaged run gets past here."""

from pathlib import Path

from icl_lab.errors import RunFailed
from icl_lab.evidence.layer import Kept
from icl_lab.grid import Grid, model_name
from icl_lab.registry import filename
from icl_lab.runs import reuse
from icl_lab.runs.manifest import WAY_OUT
from icl_lab.runs.run import Run

ALWAYS = ("spec.json", "env.json", "history.csv", "grid.csv")
MEASURED = ("grid.csv", "errors.safetensors")


def files(run: Run, *, weights: bool, held: Kept | None = None) -> dict[str, bytes]:
    """Returns the files of a finished run, by their names below its folder; ``weights`` adds the trained model.

    ``held`` is the run as the evidence holds it: where its very model was trained again to be tested with another rule,
    the tests are added to what is held. Raises ``RunFailed`` where the run is not finished, a file is damaged,
    rows are of another run, or a cell is not the mean of its errors.
    """
    found = held.files() if held is not None and tested(run, held) else _own(run)
    for place in _tests(run):
        swapped(run, place).measured()
        found |= {f"{place.name}/{name}": run.read(name, place) for name in MEASURED if (place / name).exists()}
    if weights:
        if not run.trained:
            raise RunFailed(f"{run.folder} has no weights; add it without --weights.")
        run.check_weights()
        found["model.safetensors"] = run.read("model.safetensors", run.folder)
    return found


def tested(run: Run, held: Kept | None) -> bool:
    """Whether a run has tests with other rules, of the very model that the evidence is of."""
    if held is None or not _tests(run) or not (run.folder / "env.json").exists():
        return False
    return reuse.same_model(held, run.env())


def _own(run: Run) -> dict[str, bytes]:
    """Returns the files of a finished run itself, without its tests with other rules."""
    missing = [name for name in ALWAYS if not (run.folder / name).exists()]
    if missing:
        raise RunFailed(f"{run.folder} is not a finished run: it has no {', '.join(missing)}.")
    run.measured()
    run.env()
    run.history()
    there = (name for name in (*ALWAYS, "errors.safetensors") if (run.folder / name).exists())
    return {name: run.read(name, run.folder) for name in there}


def _tests(run: Run) -> list[Path]:
    """Returns the folders of finished tests with other rules."""
    return sorted(path.parent for path in run.folder.glob("swap-*/grid.csv"))


def swapped(run: Run, place: Path) -> Run:
    """Returns the test with another rule that a folder ``swap-<rule>`` holds."""
    try:
        name = model_name(Grid.read(place / "grid.csv"))
    except (OSError, ValueError, KeyError) as error:
        raise RunFailed(f"{place / 'grid.csv'} cannot be read: {error}; {WAY_OUT}.") from error
    swap = name.rpartition("->")[2]
    if place.name != f"swap-{filename(swap)}":
        raise RunFailed(f"{place / 'grid.csv'} is of another run: attn is {name}; {WAY_OUT}.")
    return run.swapped(swap)
