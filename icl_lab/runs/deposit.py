"""Checks of a run before it is added to the evidence; a damaged one is refused."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safetensors.torch import save

from icl_lab.errors import RunFailed
from icl_lab.evidence.layer import Kept
from icl_lab.grid import Grid, model_name
from icl_lab.registry import filename
from icl_lab.runs import reuse
from icl_lab.runs.manifest import WAY_OUT
from icl_lab.runs.run import READ_OUT, Run

Cells = Sequence[Mapping[str, float]]

ALWAYS = ("spec.json", "env.json", "history.csv", "grid.csv")


def files(
    run: Run, *, weights: bool, held: Kept | None = None, cells: Callable[[Run], Cells] = lambda run: ()
) -> dict[str, bytes]:
    """Returns the files of a finished run, by their names below its folder; ``weights`` adds the trained model.

    Of the errors of single prompts those of ``cells`` are kept: labels, for a run or its test with another rule. The
    parameters of the last norm and the read-out are kept of every run that has its weights.

    ``held`` is the run as the evidence holds it: where its very model was trained again to be tested with another rule,
    the tests are added to what is held. Raises ``RunFailed`` where the run is not finished, a file is damaged,
    rows are of another run, or a cell is not the mean of its errors.
    """
    found = held.files() if held is not None and tested(run, held) else _own(run, cells)
    for place in _tests(run):
        swap = swapped(run, place)
        swap.measured()
        found[f"{place.name}/grid.csv"] = run.read("grid.csv", place)
        found |= {f"{place.name}/{name}": data for name, data in _errors(swap, cells).items()}
    if weights:
        if not run.trained:
            raise RunFailed(f"{run.folder} has no weights; add it without --weights.")
        found["model.safetensors"] = run.check_weights()
    return found


def tested(run: Run, held: Kept | None) -> bool:
    """True if a run has tests with other rules, of the very model that the evidence is of."""
    if held is None or not _tests(run) or not (run.folder / "env.json").exists():
        return False
    return reuse.same_model(held, run.env())


def _own(run: Run, cells: Callable[[Run], Cells]) -> dict[str, bytes]:
    """Returns the files of a finished run itself, without its tests with other rules."""
    missing = [name for name in ALWAYS if not (run.folder / name).exists()]
    if missing:
        raise RunFailed(f"{run.folder} is not a finished run: it has no {', '.join(missing)}.")
    run.measured()
    run.env()
    run.history()
    found = {name: run.read(name, run.folder) for name in ALWAYS}
    last = run.last_parameters()
    return found | _errors(run, cells) | ({} if last is None else {READ_OUT: save(last)})


def _errors(run: Run, cells: Callable[[Run], Cells]) -> dict[str, bytes]:
    """Returns the errors of single prompts that are kept of a run; nothing where it has none."""
    errors = run.errors()
    return {} if errors is None else {"errors.safetensors": errors.only(cells(run)).encoded()}


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
