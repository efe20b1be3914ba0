"""Every kind of stored file, damaged in every way, through every command and function that reads it.

Each reader meets a few of the damages a round; ``ICL_LAB_TORTURE=25`` does some thousand.
"""

import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from icl_lab.runs import manifest, study_folder
from tests.torture.faults import DAMAGES, IN_PLACE, damage, share
from tests.torture.ground import AXES, READERS, SMALL, Ground, _quick, apart, tree
from tests.torture.process import Answer, Hook, ask

COUNT = 2  # damages for each reader
STORED = ("results/", "home/", "site/")  # what the laboratory wrote; all else is the user's
MISSED = ("damaged", "cannot be read", "is missing", "edited", "left aside", "no table")
MISSED += ("does not name", "is no ", "not tested")
NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
COMPARED = "made = icl.compare('linear', ['softmax', 'ssa'], 'smoke', settings, seeds=2, where=where)\n"
PYTHON = {
    "icl.sweep": "run = icl.sweep('linear', 'ssa', 'smoke', settings, where=where); print(run.grid.csv(), run.history)",
    "icl.compare": COMPARED + "print(made.table().to_csv(), made.effects().to_csv(), made.verdict)",
    "icl.find": "run = icl.find(NAME, where=where); print(run.grid.csv(), run.history, run)",
    "icl.load": "print(sum(float(p.detach().sum()) for p in icl.load(NAME, where=where).parameters()))",
    "icl.list_runs": "print(icl.list_runs(where=where).to_csv())",
    "icl.analyse": "made = icl.analyse('deviant', [icl.find(NAME, where=where)], factors=[1, 10], prompts=8)\n"
    "print({name: grid.csv() for name, grid in made.grids.items()})",
    "icl.heads": "made = icl.heads([icl.find(NAME, where=where)], prompts=8)\n"
    "for name, grid in made.grids.items(): print(name, grid.csv())",
    "icl.experiment": "print(icl.experiment('tiny', 'smoke', seeds=2, where=where))",
    "icl.export": COMPARED + "print(icl.export(made.table(), 'csv'))",
}


def python(code: str) -> Hook:
    """The job of some lines of Python."""

    def job() -> None:
        import icl_lab as icl

        where = icl.Where(results="results", progress=False)
        try:
            exec(code, {"icl": icl, "where": where, "settings": SMALL | AXES})
        except icl.LabError as error:
            raise SystemExit(f"icl-lab: {error}") from error

    return job


def read_by(ground: Ground, reader: str, place: Path, *before: Hook) -> Answer:
    """Let a command or some Python read."""
    if reader in READERS:
        return ground.ask(READERS[reader], place, *before)
    (run,) = place.glob("results/runs/linear/ssa/smoke-*")
    return ask(python(PYTHON[reader].replace("NAME", f"'linear/ssa/{run.name}'")), place, [_quick, *before])


@dataclass(frozen=True)
class Clean:
    """What a reader says and leaves where nothing is damaged, and the files that it reads, by their kind."""

    answer: Answer
    files: dict[str, bytes]
    kinds: dict[str, list[str]]

    def outcome(self, path: str, answer: Answer, now: dict[str, bytes]) -> str:
        """How the reader took a damage: "same", "named", "silent", or what is wrong with its complaint."""
        if (wrong := answer.wrong()) or answer.code:
            return wrong or "named"
        changed = [name for name in apart(now, self.files) if not name.startswith(path)]
        if answer.out == self.answer.out and not changed:
            return "same"
        before = {name: data.decode(errors="ignore") for name, data in self.files.items()}
        pages = {name: now[name].decode(errors="ignore") for name in changed if name in now}
        added = [(text, before.get(name, "")) for name, text in pages.items()]  # a page may be where it is named
        said = [(answer.out + answer.err, ""), *added]
        if any(word in text and word not in old for text, old in said for word in MISSED):
            return "named"
        texts = [self.answer.out, *before.values()]
        known = {number for text in texts for number in NUMBER.findall(text)}
        return "silent" if set(NUMBER.findall(answer.out + "".join(pages.values()))) - known else "same"


@cache
def clean(ground: Ground, reader: str) -> Clean:
    place = ground.copy(ground.stored)
    there, answer, kinds = tree(place), read_by(ground, reader, place), {}
    assert answer.code == 0, (reader, answer.err)
    for path in (name.removeprefix(f"{place}/") for name in answer.read):
        if path in there and path.startswith(STORED):
            kinds.setdefault(kind_of(path), []).append(path)
    return Clean(answer, tree(place), kinds)


def kind_of(path: str) -> str:
    """The kind of a stored file: its name where there are many of it, else its ending, and what it belongs to."""
    top = path.split("/")[1] if path.startswith("results/") else path.split("/")[0]
    part = top if top in ("runs", "home", "site") else "study"
    name = Path(path).name
    return f"{part}/{name if part in ('runs', 'home') and 'weights' not in path else Path(path).suffix or name}"


def sealed(path: str, how: str) -> bool:
    """True where ``verify`` has to find a damage. Weights may be removed: they are trained again."""
    ours = path.startswith("results/") and Path(path).suffix in (".csv", ".json", ".safetensors")
    return ours and not (how == "removed" and path.endswith("model.safetensors"))


def taken(ground: Ground, reader: str, path: str, how: str, rng) -> tuple[str, str]:
    """Damages a file and lets it be read, and by ``verify`` too; returns how each took it."""
    unharmed, whole, place = clean(ground, "verify").answer, clean(ground, reader), ground.copy(ground.stored)
    file = place / path
    changed, hooks = damage(file, how, rng, [each for each in place.rglob(file.name) if each.is_file()])
    if not changed:
        return "same", "same"
    found = ground.ask(["verify"], place, *hooks) if sealed(path, how) else Answer(0)
    answer = read_by(ground, reader, place, *hooks)
    if file.is_dir():
        shutil.rmtree(file)
    verified = "silent" if found.out == unharmed.out else "named"
    return whole.outcome(path, answer, tree(place)), found.wrong() or verified


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@pytest.mark.parametrize("reader", [*READERS, *PYTHON])
def test_no_damage_is_taken_for_right(ground, reader):
    kinds, wrong = clean(ground, reader).kinds, []
    for (kind, how), rng in share([(kind, how) for kind in kinds for how in (*DAMAGES, *IN_PLACE)], reader, COUNT):
        path = rng.choice(kinds[kind])
        ends = taken(ground, reader, path, how, rng)
        if not set(ends) <= {"same", "named"}:
            wrong.append((path, how, *ends))
    assert wrong == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("module", "check", "reader", "kind", "by"),
    [
        (manifest, "check", "export (run)", "runs/grid.csv", 0),
        (study_folder, "verify", "export (table)", "study/.csv", 1),
    ],
)
def test_damage_that_nothing_checks_is_silent(ground, monkeypatch, module, check, reader, kind, by):
    (path, *_) = clean(ground, reader).kinds[kind]
    read = lambda: {taken(ground, reader, path, "one digit", rng)[by] for _, rng in share([0], reader, 3)}  # noqa: E731
    assert read() == {"named"}
    monkeypatch.setattr(module, check, lambda *_: None)
    assert "silent" in read()


def test_how_a_damage_is_taken_is_told_apart():
    read = Clean(Answer(0, "error 0.25\n"), {"results/a.csv": b"0.25"}, {}).outcome
    took = lambda *given: read("results/a.csv", Answer(*given), {"results/a.csv": b"0.25"})  # noqa: E731
    assert took(0, "error 0.35\n") == "silent"
    assert took(0, "error 0.35\n", "results/a.csv is damaged") == "named"
    assert took(0, "error 0.25\n") == "same"
    assert took(1, "", "icl-lab: results/a.csv is damaged.\n") == "named"
    assert took(1).startswith("exit code 1 with 0 lines")
