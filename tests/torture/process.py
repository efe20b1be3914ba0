"""A command in a forked process: what it says, the files it opens, and a fault at one of its writes."""

import errno
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link")
TRACEBACK = 99  # exit code of a process that ended in a traceback
LATE = 98  # of one that was ended because it took too long


@dataclass
class Answer:
    """End of a command: exit code (minus the signal that ended it), output, and what was watched."""

    code: int
    out: str
    err: str
    seconds: float
    writes: int = 0  # moments at which it wrote: files opened, moved, removed
    read: list[str] = field(default_factory=list)  # files that it opened

    @property
    def said(self) -> str:
        """Standard output and error."""
        return self.out + self.err


class Watch:
    """Audit of the files of this process, and a fault at one of its writes. There is one for good: hooks stay."""

    def __init__(self) -> None:
        self.root = ""
        self.writes = 0
        self.read: dict[str, None] = {}
        self.fault: Callable[[int], object] | None = None
        self.denied = ""

    def see(self, event: str, arguments: tuple) -> None:
        """Counts a write, notes a reading."""
        if not self.root:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or path is None:
                return
            name = _absolute(path)
            if not name.startswith(self.root):
                return
            if self.denied and name == self.denied:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
            if isinstance(flags, int) and flags & WRITING:
                self._write()
            else:
                self.read[name] = None
        elif event in CHANGES and _absolute(arguments[0]).startswith(self.root):
            self._write()
        elif event in ("os.listdir", "os.scandir") and self.denied and self._is_denied(arguments[0]):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.denied)

    def _is_denied(self, path: object) -> bool:
        return isinstance(path, str) and _absolute(path) == self.denied

    def _write(self) -> None:
        self.writes += 1
        if self.fault is not None:
            self.fault(self.writes)


def _absolute(path: str | bytes | os.PathLike) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # links stay: resolving one opens files


WATCH = Watch()
sys.addaudithook(WATCH.see)


def killed_at(write: int) -> Callable[[], None]:
    """A fault: SIGKILL before one of the writes."""

    def begin() -> None:
        WATCH.fault = lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == write else None

    return begin


def full_at(write: int) -> Callable[[], None]:
    """A fault: no space left from one of the writes on."""

    def begin() -> None:
        def full(number: int) -> None:
            if number >= write:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        WATCH.fault = full

    return begin


def file_limit(size: int) -> Callable[[], None]:
    """A fault: no file may become larger, as ``ulimit -f`` says it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def denied(path: Path) -> Callable[[], None]:
    """A fault: a file or folder that may not be read, whoever one is."""

    def begin() -> None:
        WATCH.denied = str(path)

    return begin


def command(words: Sequence[str]) -> Callable[[], None]:
    """The job of a command line."""

    def job() -> None:
        from icl_lab.cli.main import main

        sys.argv = ["icl-lab", *words]
        main()

    return job


def ask(
    job: Callable[[], object],
    place: Path,
    before: Sequence[Callable[[], object]] = (),
    *,
    kill_after: float | None = None,
    most: float = 120.0,
) -> Answer:
    """Does a job in a process of its own, in a folder, and returns how it ended; SIGKILL after ``kill_after`` seconds.

    The process shares what is loaded with this one, so that it costs no time to begin.
    """
    pipes = [os.pipe() for _ in range(3)]
    began = time.monotonic()
    number = os.fork()
    if number == 0:
        for reading, _ in pipes:
            os.close(reading)
        _child(job, place, before, [writing for _, writing in pipes])
    for _, writing in pipes:
        os.close(writing)
    said = _collect(number, [reading for reading, _ in pipes], began, kill_after, most)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    seconds = time.monotonic() - began
    if code == -signal.SIGKILL and kill_after is None and seconds >= most:
        code = LATE
    out, err, watched = (data.decode(errors="replace") for data in said)
    writes, *read = watched.splitlines() or ["0"]
    return Answer(code, out, err, seconds, int(writes), read)


def _child(job: Callable[[], object], place: Path, before: Sequence[Callable[[], object]], pipes: list[int]) -> None:
    code = TRACEBACK
    try:
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        torch.set_num_threads(1)
        os.chdir(place)
        WATCH.root = f"{place}/"
        for each in before:
            each()
        try:
            job()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1 if left.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        WATCH.fault, WATCH.root, WATCH.denied = None, "", ""
        sys.stdout.flush()
        sys.stderr.flush()
        with open(pipes[2], "w", closefd=False) as file:
            file.write("\n".join([str(WATCH.writes), *WATCH.read]))
        os._exit(code)


def _collect(number: int, pipes: list[int], began: float, kill_after: float | None, most: float) -> list[bytes]:
    """Reads all that a process says until it ends; ends it when its time is over."""
    found = {pipe: bytearray() for pipe in pipes}
    ends = began + (most if kill_after is None else kill_after)
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(max(0.0, ends - time.monotonic())):
                data = os.read(key.fd, 65_536)
                if data:
                    found[key.fd] += data
                else:
                    selector.unregister(key.fd)
            if time.monotonic() >= ends and selector.get_map():
                os.kill(number, signal.SIGKILL)
                ends = time.monotonic() + 3600
    for pipe in pipes:
        os.close(pipe)
    return [bytes(found[pipe]) for pipe in pipes]
