"""Every command that writes, disturbed in every way: done again, it gives the same bytes.

Each command meets a few of the faults; ``ICL_LAB_TORTURE=7`` does them all, and more do them at other moments.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from icl_lab.base.errors import RunFailed
from icl_lab.runs import checkpoints
from tests.torture.faults import FAULTS, ROUNDS, share
from tests.torture.ground import FROM_NOTHING, FROM_STORED, Ground, apart, tree
from tests.torture.process import Answer

pytestmark = pytest.mark.slow

COMMANDS = {**FROM_NOTHING, **FROM_STORED}
SLOW = ("attention",) if ROUNDS == 1 else ()  # ten seconds and more
TOGETHER = 2  # faults before a command may end


Undisturbed = tuple[Answer, dict[str, bytes]]  # end of a command that nothing was done to, and the files after it


def undisturbed(ground: Ground, name: str) -> Undisturbed:
    place = ground.begun(name)
    answer = ground.ask(COMMANDS[name], place)
    assert answer.code == 0, (name, answer.err)
    return answer, tree(place)


def differing(place: Path, files: dict[str, bytes]) -> str:
    """What is lost, changed or left in a folder, or nothing."""
    now = tree(place)
    changed = apart(now, files) & now.keys() & files.keys()
    kinds = {"lost": files.keys() - now, "left": now.keys() - files, "changed": changed}
    return "; ".join(f"{kind}: {sorted(names)}" for kind, names in kinds.items() if names)


def disturbed(ground: Ground, name: str, faults: Sequence[tuple], whole: Undisturbed) -> list[str]:
    """Do faults to a command, some together, then the command once more; return what became wrong of it."""
    found = []
    for at in range(0, len(faults), TOGETHER):
        place, ends = ground.begun(name), ""
        for kind, rng in [*faults[at : at + TOGETHER], ("nothing", None)]:
            answers = FAULTS[kind].done(partial(ground.ask, COMMANDS[name], place), place, rng, whole[0])
            ends += f"{kind}, "
            told = [each for each in answers if "another process" not in each.err or each.code != 1]
            found += [f"{ends}{wrong}" for each in told if (wrong := each.wrong(FAULTS[kind].codes))]
            if not any(each.code for each in answers) and (wrong := differing(place, whole[1])):
                found.append(f"{ends}{wrong}")
    return found


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SLOW])
def test_a_disturbed_command_done_again_gives_the_same(ground, name):
    faults = share([each for each in FAULTS if each != "nothing"], name, TOGETHER)
    assert disturbed(ground, name, faults, undisturbed(ground, name)) == []


def forgets(resume, *given):
    progress = resume(*given)
    progress.step = max(0, progress.step - 1)
    return progress


def refuses(resume, folder, *given):
    if any((folder / name).exists() for name in checkpoints.NAMES):
        raise RunFailed("no")
    return resume(folder, *given)


@pytest.mark.parametrize(("planted", "found"), [(forgets, "changed: "), (refuses, "nothing, exit code 1")])
def test_a_run_that_goes_on_wrongly_is_found(ground, monkeypatch, planted, found):
    whole, resume = undisturbed(ground, "sweep"), checkpoints.resume
    monkeypatch.setattr(checkpoints, "resume", lambda *given: planted(resume, *given))
    faults = share(["SIGTERM"], "sweep", 4)
    assert any(found in each for each in disturbed(ground, "sweep", faults, whole))


def test_a_rest_and_another_byte_are_found(ground):
    _, whole = undisturbed(ground, "theory")
    place = ground.begun("theory")
    assert ground.ask(COMMANDS["theory"], place).code == 0
    assert differing(place, whole) == ""
    (place / "left").write_text("")
    other = {**whole, "another": b"", "page.md": b"x"}
    assert differing(place, other) == "lost: ['another']; left: ['left']; changed: ['page.md']"
