"""Every kind of stored file, damaged in every way, through every command and function that reads it.

``ICL_LAB_TORTURE=full`` does 1,000 damages, in about half an hour.
"""

import random
import re
from collections import Counter

import pytest

from tests.torture.damages import KINDS, MISSED, PYTHON, READERS, STORED, damage, kind_of, read_by, restored
from tests.torture.ground import FROM_NOTHING, Ground, apart, tree
from tests.torture.process import LATE, TRACEBACK, Answer, killed_at
from tests.torture.tally import FULL, PART, PARTS, Tally

COUNT = 1000 // PARTS if FULL else 24
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(0)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    made = Ground.build(tmp_path_factory.mktemp("ground"))
    made.ask(list(READERS["sweep (unfinished)"]), made.stored, killed_at(70))
    return made


@pytest.fixture(scope="module")
def whole(ground):
    """What each reader says and leaves where nothing is damaged, and the kinds of files that it reads."""
    found = {}
    for reader in (*READERS, *PYTHON):
        place = ground.copy(stored=True)
        there = tree(place)
        answer = read_by(ground, reader, place)
        assert answer.code == 0, (reader, answer.said)
        paths = [name.removeprefix(f"{place}/") for name in answer.read]
        kept = [path for path in paths if path in there and path.startswith(STORED)]
        found[reader] = answer, tree(place), kept
    return found


def outcome(path: str, answer: Answer, now: dict[str, bytes], clean: Answer, before: dict[str, bytes]) -> str:
    """How a reader took a damage: "same", "named", or what is wrong."""
    if answer.code in (TRACEBACK, LATE) or "Traceback" in answer.said or answer.code not in (0, 1, 2):
        return "traceback"
    if answer.code:
        told = [line for line in answer.err.splitlines() if line.startswith(("icl-lab: ", "Error: "))]
        return "named" if told else "traceback"
    changed = [name for name in apart(now, before) if not name.startswith(path)]
    if answer.out == clean.out and not changed:
        return "same"
    if any(word in answer.said for word in MISSED):
        return "named"
    known = set(NUMBER.findall(clean.out)) | {
        number for data in before.values() for number in NUMBER.findall(data.decode(errors="ignore"))
    }
    said = answer.out + "".join(now[name].decode(errors="ignore") for name in changed if name in now)
    return "silent" if set(NUMBER.findall(said)) - known else "same"


def pairs(whole) -> list[tuple[str, str, str]]:
    """Each reader with each kind of file that it reads and each kind of damage; files are drawn.

    In a drawn order, in which readers take turns by the time that each takes.
    """
    rng, found, turns = random.Random(0), [], Counter()
    for reader, (_, _, paths) in whole.items():
        kinds = {}
        for path in paths:
            kinds.setdefault(kind_of(path), []).append(path)
        found += [(reader, rng.choice(own), how) for own in kinds.values() for how in KINDS]
    rng.shuffle(found)
    timed = []
    for number, each in enumerate(found):
        turns[each[0]] += 1
        timed.append((turns[each[0]] * whole[each[0]][0].seconds, number))
    return [found[number] for _, number in sorted(timed)]


def test_no_damage_is_taken_for_right(ground, whole):
    tally, rng = Tally(), random.Random(1)
    for reader, path, how in pairs(whole)[PART::PARTS]:
        if tally.done["damaged"] == COUNT:
            break
        clean, before, _ = whole[reader]
        place = ground.copy(stored=True)
        changed, faults = damage(place, path, how, rng)
        if not changed:
            continue
        answer = read_by(ground, reader, place, *faults)
        restored(place, path)
        found = outcome(path, answer, tree(place), clean, before)
        bad = found if found in ("silent", "traceback") else ""
        tally.count(
            "damaged", kind_of(path), f"{how}, {reader}", bad, f"{path}\n{answer.out[-600:]}\n{answer.err[-1200:]}"
        )
    tally.write(f"damages-{PART}")
    assert tally.done["damaged"] == COUNT
    assert not tally.faults


def test_a_damaged_number_that_is_printed_is_told():
    clean, before = Answer(0, "error 0.25\n", "", 0.0), {"results/a.csv": b"0.25"}
    read = lambda code, out, err: outcome("results/a.csv", Answer(code, out, err, 0.0), before, clean, before)  # noqa: E731
    assert read(0, "error 0.35\n", "") == "silent"
    assert read(0, "error 0.35\n", "results/a.csv is damaged") == "named"
    assert read(0, "error 0.25\n", "") == "same"
    assert read(1, "", "icl-lab: results/a.csv is damaged.\n") == "named"
    assert read(1, "", "") == "traceback"
    assert read(TRACEBACK, "", "") == "traceback"


def test_every_command_that_writes_a_study_is_read_again():
    assert {name.removesuffix(" again") for name in READERS if name.endswith(" again")} <= set(FROM_NOTHING)
