"""Damages to a stored file, and those who read it."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.torture.faults import DAMAGES
from tests.torture.ground import CELLS, FROM_NOTHING, FROM_STORED, READING, SMALL, Ground
from tests.torture.process import Answer, ask, denied

IN_PLACE = ("a folder in its place", "another's", "mode 0000")
KINDS = (*DAMAGES, *IN_PLACE)
STORED = ("results/", "home/", "site/")  # what the laboratory wrote; all else is the user's
MISSED = ("damaged", "cannot be read", "is missing", "edited", "left aside", "no table", "does not name", "is no ")


def python(code: str) -> Callable[[], None]:
    """The job of some lines of Python."""

    def job() -> None:
        import icl_lab as icl
        from icl_lab.errors import LabError

        where = icl.Where(results="results", progress=False)
        settings = {**SMALL, **dict(word.split("=", 1) for word in CELLS if "=" in word)}
        try:
            exec(code, {"icl": icl, "where": where, "settings": settings})
        except LabError as error:
            raise SystemExit(_told(f"icl-lab: {error}")) from error

    return job


def _told(line: str) -> int:
    import sys

    print(line, file=sys.stderr)
    return 1


PYTHON = {
    "icl.sweep": "run = icl.sweep('linear', 'ssa', 'smoke', settings, where=where); print(run.grid.csv(), run.history)",
    "icl.compare": "made = icl.compare('linear', ['softmax', 'ssa'], 'smoke', settings, seeds=2, where=where)\n"
    "print(made.table().to_csv(), made.effects().to_csv(), made.verdict)",
    "icl.find": "run = icl.find(NAME, where=where); print(run.grid.csv(), run.history, run)",
    "icl.load": "print(sum(float(p.detach().sum()) for p in icl.load(NAME, where=where).parameters()))",
    "icl.list_runs": "print(icl.list_runs(where=where).to_csv())",
    "icl.analyse": "run = icl.find(NAME, where=where)\n"
    "made = icl.analyse('deviant', [run], factors=[1, 10], prompts=8)\n"
    "print({name: grid.csv() for name, grid in made.grids.items()})",
    "icl.heads": "run = icl.find(NAME, where=where)\n"
    "for name, grid in icl.heads([run], prompts=8).grids.items(): print(name, grid.csv())",
    "icl.experiment": "print(icl.experiment('tiny', 'smoke', seeds=2, where=where))",
    "icl.export": "made = icl.compare('linear', ['softmax', 'ssa'], 'smoke', settings, seeds=2, where=where)\n"
    "print(icl.export(made.table(), 'csv'))",
}
AGAIN = ("sweep", "compare", "experiment", "experiment (analysis)", "deviant", "boundary", "lm", "prompted")
READERS: dict[str, Sequence[str]] = {
    **{f"{name} again": FROM_NOTHING[name] for name in AGAIN},
    "sweep (unfinished)": ["sweep", *FROM_NOTHING["sweep"][1:-1], "ssmax"],
    **FROM_STORED,
    **{f"{name} (reading)" if name in FROM_STORED else name: words for name, words in READING.items()},
}


def read_by(ground: Ground, reader: str, place: Path, *before: Callable[[], object]) -> Answer:
    """Lets a command or some Python read."""
    if reader in PYTHON:
        (run,) = place.glob("results/runs/linear/ssa/smoke-*")
        code = PYTHON[reader].replace("NAME", f"'linear/ssa/{run.name}'")
        return ask(python(code), place, [ground.quick, *before])
    return ground.ask(list(READERS[reader]), place, *before)


def kind_of(path: str) -> str:
    """The kind of a stored file: its name where there are many of it, else its ending, and what it belongs to."""
    top = path.split("/")[1] if path.startswith("results/") else path.split("/")[0]
    part = top if top in ("runs", "finetuned", "home", "site") else "study"
    name = Path(path).name
    return f"{part}/{name if part in ('runs', 'home') and 'weights' not in path else Path(path).suffix or name}"


def damage(place: Path, path: str, kind: str, rng: random.Random) -> tuple[bool, list[Callable[[], object]]]:
    """Damages a file; returns whether that changed it, and what has to be done in the process that reads it."""
    file = place / path
    whole = file.read_bytes()
    if kind == "mode 0000":
        _anew(file, whole)
        file.chmod(0)
        return True, [denied(file)]  # also for a user who may read everything
    if kind == "a folder in its place":
        file.unlink()
        file.mkdir()
        return True, []
    if kind == "another's":
        others = [other for other in place.rglob(file.name) if other != file and other.read_bytes() != whole]
        if not others:
            return False, []
        _anew(file, rng.choice(sorted(others)).read_bytes())
        return True, []
    changed = DAMAGES[kind](whole, rng)
    file.unlink() if kind == "removed" else _anew(file, changed)
    return changed != whole or kind == "removed", []


def _anew(file: Path, data: bytes) -> None:
    """Writes a file that may be a link of one that has to stay."""
    file.unlink()
    file.write_bytes(data)


def restored(place: Path, path: str) -> None:
    """Makes a damaged file one that a folder can be removed with."""
    if (place / path).is_dir():
        shutil.rmtree(place / path)
