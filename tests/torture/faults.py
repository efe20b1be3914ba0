"""Faults to processes that write, and damages to files that are read."""

import errno
import os
import random
import re
import resource
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.torture.process import Answer, Hook, at_write, denied

ROUNDS = int(os.environ.get("ICL_LAB_TORTURE", "1"))
Do = Callable[..., Answer]  # does the command, after hooks
Act = Callable[[random.Random, Answer], Hook]  # draws a hook for a command of which this is the undisturbed end


def share(of: Sequence, seed: str, count: int) -> list[tuple]:
    """Return so many of some things a round, in a drawn order, each with random numbers for what is done to it."""
    order = random.Random(seed).sample(of, len(of))
    return [(order[at % len(of)], random.Random(f"{seed} {at}")) for at in range(count * ROUNDS if of else 0)]


@dataclass(frozen=True)
class Fault:
    """What happens to a command, with which exit codes it may end, and what is done to its folder after it."""

    act: Act
    codes: tuple[int, ...]
    copies: int = 1  # of the command, at one time
    after: Callable[[Path, random.Random], object] = lambda place, rng: None

    def done(self, do: Do, place: Path, rng: random.Random, whole: Answer) -> list[Answer]:
        """Do the fault to a command, and return how it ended."""
        hook = self.act(rng, whole)
        with ThreadPoolExecutor(self.copies) as pool:
            answers = list(pool.map(lambda _: do(hook), range(self.copies)))
        self.after(place, rng)
        return answers


def drawn(rng: random.Random, whole: Answer) -> int:
    """The number of a write: of each file as often as of any other, though checkpoints are written most."""
    files = [re.sub(r"-[a-z0-9_]{8}$", "", name) for name in whole.written] or [""]  # temporary ones have a drawn end
    file = rng.choice(sorted(set(files)))
    return 1 + rng.choice([at for at, name in enumerate(files) if name == file])


def signalled(number: int) -> Act:
    """A signal before one of the writes, as a process gets it that ignores none."""

    def act(rng: random.Random, whole: Answer) -> Hook:
        at = drawn(rng, whole)

        def hook() -> None:
            if number != signal.SIGKILL:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            at_write(lambda write: os.kill(os.getpid(), number) if write == at else None)()

        return hook

    return act


def refused(kind: int, first: Callable[[random.Random, Answer], int]) -> Act:
    """Write that are refused from one of them on."""

    def act(rng: random.Random, whole: Answer) -> Hook:
        at = first(rng, whole)

        def refuse(write: int) -> None:
            if write >= at:
                raise OSError(kind, os.strerror(kind))

        return at_write(refuse)

    return act


def ended(rng: random.Random, whole: Answer) -> Hook:
    """The end of a process at any time, whatever it does."""
    seconds = rng.uniform(0.001, whole.seconds)
    return lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL) and signal.setitimer(signal.ITIMER_REAL, seconds)


def limited(action: signal.Handlers) -> Act:
    """Files that end in the middle of a write, as ``ulimit -f`` makes them: an error, or the end of the process."""

    def act(rng: random.Random, whole: Answer) -> Hook:
        size = int(10 ** rng.uniform(1, 5))

        def hook() -> None:
            signal.signal(signal.SIGXFSZ, action)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        return hook

    return act


def jumping(rng: random.Random, whole: Answer) -> Hook:
    """A clock that jumps by up to a year, forward or back, with every look at it."""
    clock = time.time
    return lambda: setattr(time, "time", lambda: clock() + rng.uniform(-3e7, 3e7))


def spoil(place: Path, rng: random.Random) -> None:
    """Damages every checkpoint that this command wrote: what was there before it is a link."""
    for path in sorted(place.rglob("checkpoint*.pt")):
        if path.stat().st_nlink == 1:
            damage(path, rng.choice(sorted(DAMAGES)), rng)


def untouched(rng: random.Random, whole: Answer) -> Hook:
    """Nothing."""
    return lambda: None


FAULTS = {
    "nothing": Fault(untouched, (0,)),
    "killed at a write": Fault(signalled(signal.SIGKILL), (0, -signal.SIGKILL)),
    "killed at a moment": Fault(ended, (0, -signal.SIGALRM)),
    "Ctrl-C": Fault(signalled(signal.SIGINT), (0, 130)),
    "SIGTERM": Fault(signalled(signal.SIGTERM), (0, 75, -signal.SIGTERM)),
    "SIGHUP": Fault(signalled(signal.SIGHUP), (0, 75, -signal.SIGHUP)),
    "full disk": Fault(refused(errno.ENOSPC, drawn), (0, 1)),
    "disk full in a write": Fault(limited(signal.SIG_IGN), (0, 1)),
    "killed in a write": Fault(limited(signal.SIG_DFL), (0, -signal.SIGXFSZ)),
    "read-only": Fault(refused(errno.EROFS, lambda rng, whole: 1), (0, 1)),
    "clock": Fault(jumping, (0,)),
    "damaged checkpoint": Fault(signalled(signal.SIGKILL), (0, -signal.SIGKILL), after=spoil),
    "second copy": Fault(untouched, (0,), copies=2),
}


def one_bit(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(max(1, len(data)))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if data else b"x"


def lines_cut(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: rng.randrange(len(lines))]) if len(lines) > 1 else data[:-1]


def one_digit(data: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(data[:100_000]) if byte in b"012345678"]
    at = rng.choice(places or [0])
    return data[:at] + bytes([data[at] + 1]) + data[at + 1 :] if places else one_bit(data, rng)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "one bit": one_bit,
    "cut short": lambda data, rng: data[: rng.randrange(max(1, len(data)))],
    "lines cut": lines_cut,
    "one digit": one_digit,
    "emptied": lambda data, rng: b"",
    "garbage": lambda data, rng: rng.randbytes(max(1, len(data))),
}
IN_PLACE = ("removed", "a folder in its place", "another's", "mode 0000")


def damage(file: Path, kind: str, rng: random.Random, others: Sequence[Path] = ()) -> tuple[bool, list[Hook]]:
    """Damages a file; returns whether that changed it, and hooks of the process that reads it.

    What it is a link of stays. The bytes of ``another's`` are drawn from ``others``.
    """
    whole = changed = file.read_bytes()
    if kind == "another's":
        changed = rng.choice(sorted({each.read_bytes() for each in others} - {whole}) or [whole])
    elif kind in DAMAGES:
        changed = DAMAGES[kind](whole, rng)
    file.unlink()
    if kind == "a folder in its place":
        file.mkdir()
    elif kind != "removed":
        file.write_bytes(changed)
    return changed != whole or kind not in (*DAMAGES, "another's"), [denied(file)] * (kind == "mode 0000")
