"""Every command that writes, killed or out of space at random moments: done again, it gives the same bytes.

``ICL_LAB_TORTURE=full`` does 200 kills, and 140 full disks of three kinds, in about half an hour; ``-s`` shows the
table.
"""

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.torture.ground import FROM_NOTHING, FROM_STORED, Ground, apart, tree
from tests.torture.process import LATE, TRACEBACK, Answer, file_limit, full_at, killed_at
from tests.torture.tally import FULL, PART, PARTS, Tally

COMMANDS = {**FROM_NOTHING, **FROM_STORED}
SLOW = ("attention", "bench")  # ten seconds and more
STORED = frozenset(FROM_STORED)
FEW = ("sweep", "experiment (analysis)", "evidence add", "lm", "site")  # done by default
TOGETHER = 4  # faults before a command may end
KINDS = ("killed", "full disk")

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(0)]


@dataclass(frozen=True)
class Undisturbed:
    """A command that nothing was done to: the files after it, its writes and its time."""

    files: dict[str, bytes]
    answer: Answer


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    return Ground.build(tmp_path_factory.mktemp("ground"))


@pytest.fixture(scope="module")
def tally():
    made = Tally()
    yield made
    made.write(f"writing-{PART}")


def begun(ground: Ground, name: str, linked: bool = True) -> Path:
    """The folder that a command is typed in."""
    return ground.copy(stored=name in STORED, linked=linked)


def undisturbed(ground: Ground, name: str, known: dict[str, Undisturbed] = {}) -> Undisturbed:  # noqa: B006
    """A command as it is done where nothing is in its way."""
    if name not in known:
        place = begun(ground, name)
        answer = ground.ask(COMMANDS[name], place)
        assert answer.code == 0, (name, answer.said)
        known[name] = Undisturbed(tree(place), answer)
    return known[name]


def kill(rng: random.Random, whole: Answer, ground: Ground, name: str, place: Path) -> tuple[Answer, str]:
    """SIGKILL at a random moment: before one of the writes, or at any time."""
    if rng.random() < 0.6:
        at = rng.randint(1, max(1, whole.writes))
        return ground.ask(COMMANDS[name], place, killed_at(at)), f"write {at} of {whole.writes}"
    seconds = rng.uniform(0, whole.seconds)
    return ground.ask(COMMANDS[name], place, kill_after=seconds), f"after {seconds:.2f} s"


def fill(rng: random.Random, whole: Answer, ground: Ground, name: str, place: Path) -> tuple[Answer, str]:
    """No space: from one of the writes on, or for files beyond a size."""
    if rng.random() < 0.6:
        at = rng.randint(1, max(1, whole.writes))
        return ground.ask(COMMANDS[name], place, full_at(at)), f"from write {at} of {whole.writes}"
    size = int(10 ** rng.uniform(1, 5))
    return ground.ask(COMMANDS[name], place, file_limit(size)), f"files of {size} bytes"


def judged(ground: Ground, name: str, place: Path, whole: Undisturbed) -> tuple[str, str]:
    """Does a command once more; returns "lost", "wrong" or "left" with what it is, or nothing."""
    last = ground.ask(COMMANDS[name], place)
    if last.code:
        return "lost", f"exit code {last.code}: {last.err[-400:]}"
    now = tree(place)
    differing = apart(now, whole.files)
    if missing := [path for path in differing if path not in now]:
        return "lost", f"missing: {missing}"
    if changed := [path for path in differing if path in whole.files]:
        return "silent", f"other bytes: {changed}"
    return ("silent", f"left: {differing}") if differing else ("", "")


def one_line(answer: Answer, codes: tuple[int, ...]) -> str:
    """What is wrong with the way in which a command ended; empty where nothing is."""
    if "Traceback" in answer.said or answer.code in (TRACEBACK, LATE):
        return f"traceback, exit code {answer.code}: {answer.err[-1500:]}"
    if answer.code not in codes:
        return f"exit code {answer.code}: {answer.err[-400:]}"
    if answer.code in (1, 2):
        told = [line for line in answer.err.splitlines() if line.startswith(("icl-lab: ", "Error: "))]
        if not told:
            return f"says nothing: {answer.said[-400:]}"
    return ""


def done_to(
    ground: Ground, name: str, kind: str, count: int, tally: Tally, rng: random.Random, fault: Callable
) -> None:
    """Does so many faults to a command, some together, and counts what became of it."""
    whole = undisturbed(ground, name)
    while count > 0:
        place, done = begun(ground, name), []
        for _ in range(min(count, rng.randint(1, TOGETHER))):
            answer, what = fault(rng, whole.answer, ground, name, place)
            wrong = one_line(answer, (0, 1, -9))
            tally.count(kind, name, what, "traceback" if wrong else "", wrong)
            done.append(what)
            count -= 1
        outcome, note = judged(ground, name, place, whole)
        if outcome:
            tally.amend(kind, name, f"{done}", outcome, note)


def chosen(total: int) -> list[tuple[str, int]]:
    """The commands that are tried, and how often each."""
    if not FULL:
        return [(name, 2) for name in FEW]
    names = [name for name in COMMANDS if name not in SLOW]
    left = total - 2 * len(SLOW)
    each = [(name, left // len(names) + (at < left % len(names))) for at, name in enumerate(names)]
    return [*each, *((name, 2) for name in SLOW)][PART::PARTS]


@pytest.mark.parametrize(("name", "count"), chosen(200), ids=lambda value: str(value))
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_command_done_again_gives_the_same_bytes(ground, tally, name, count, kind):
    before = tally.faults
    count = count if kind == "killed" else min(count, 3)  # a third way to fill a disk is below
    done_to(ground, name, kind, count, tally, random.Random(f"{kind} {name}"), kill if kind == "killed" else fill)
    assert tally.faults == before, tally.notes[-5:]


def mounted(place: Path) -> bool:
    """A small disk in memory in the place of a folder; False where that is not permitted."""
    place.mkdir(parents=True, exist_ok=True)
    return subprocess.run(["mount", "-t", "tmpfs", "none", place], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("name", [name for name, _ in chosen(200)])
def test_a_disk_that_is_really_full(ground, tally, name):
    """A file system in memory with a few blocks left; with more, the same command goes on."""
    before, rng = tally.faults, random.Random(f"tmpfs {name}")
    whole, disk = undisturbed(ground, name), ground.root / "place"
    shutil.rmtree(disk, ignore_errors=True)
    if not mounted(disk):
        pytest.skip("no file system may be mounted here")
    try:
        place = begun(ground, name, linked=False)
        used = shutil.disk_usage(disk).used
        size = used // 1024 + rng.choice([4, 8, 16, 32, 64, 128])
        subprocess.run(["mount", "-o", f"remount,size={size}k", disk], check=True)
        wrong = one_line(ground.ask(COMMANDS[name], place), (0, 1))
        tally.count("full disk", name, f"{size - used // 1024} kB left", "traceback" if wrong else "", wrong)
        subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
        outcome, note = judged(ground, name, place, whole)
        if outcome:
            tally.amend("full disk", name, "tmpfs", outcome, note)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    assert tally.faults == before, tally.notes[-5:]


def test_a_rest_and_another_byte_are_told(ground):
    """The table would tell a file that is left, one that is lost, and a byte that is another."""
    name = "functions"
    whole = undisturbed(ground, name)
    place = begun(ground, name)
    assert judged(ground, name, place, whole) == ("", "")
    (place / "left").write_text("")
    assert judged(ground, name, place, whole)[0] == "silent"
    lost = Undisturbed({**whole.files, "another": b""}, whole.answer)
    assert judged(ground, name, begun(ground, name), lost)[0] == "lost"
    other = Undisturbed({**whole.files, next(iter(whole.files)): b"x"}, whole.answer)
    assert judged(ground, name, begun(ground, name), other)[0] == "silent"
    assert one_line(Answer(TRACEBACK, "", "Traceback (most recent call last):", 0.0), (0, 1))
    assert one_line(Answer(1, "", "", 0.0), (0, 1))
    assert one_line(Answer(1, "", "icl-lab: no.\n", 0.0), (0, 1)) == ""
