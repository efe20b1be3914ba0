"""A command in a forked process: how it ends, the files that it opens, and what happens at one of its writes."""

import errno
import io
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link")
WATCHED = {*CHANGES, "open", "os.listdir", "os.scandir"}
TRACEBACK = 99  # exit code of a process that ended in a traceback
LATE = 98  # of one that was ended because it took too long
Hook = Callable[[], object]  # done in the process before its job


@dataclass
class Answer:
    """End of a command: exit code (minus the signal that ended it), output, and what was watched."""

    code: int
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    written: Sequence[str] = ()  # files that it opened to write, moved or removed, in this order
    read: Sequence[str] = ()  # files that it opened

    def wrong(self, codes: Sequence[int] = (0, 1, 2)) -> str:
        """A traceback, another exit code, or a complaint that is not one clear line; empty where all is well."""
        if "Traceback" in self.out + self.err or self.code not in codes:
            return f"exit code {self.code}: {self.err[-1500:]}"
        lines = [line for line in self.err.splitlines() if line.startswith(("icl-lab: ", "Error: "))]
        if self.code in (1, 2, 75, 130) and (not lines or (self.code == 2 and len(lines) > 1)):
            return f"exit code {self.code} with {len(lines)} lines: {self.err[-800:]}"
        return f"control characters: {self.err!a}" if self.code and set(self.err) & set("\x1b\x07\x85") else ""


class Watch:
    """Audit of the files of this process. There is one for good: hooks stay."""

    def __init__(self) -> None:
        self.root = ""
        self.written: list[str] = []
        self.read: dict[str, None] = {}
        self.at_write: Callable[[int], object] = lambda number: None
        self.denied = ""

    def see(self, event: str, arguments: tuple) -> None:
        """Counts a write, notes a reading."""
        if not self.root or event not in WATCHED or not isinstance(arguments[0], (str, bytes, os.PathLike)):
            return
        name = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100  # links stay: resolving one opens files
        if not name.startswith(self.root):
            return
        if name == self.denied and event not in CHANGES:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            self.written.append(name)
            self.at_write(len(self.written))
        elif event == "open":
            self.read[name] = None


WATCH = Watch()
sys.addaudithook(WATCH.see)


def at_write(act: Callable[[int], object]) -> Hook:
    """Hook: something is done before each write, with its number."""
    return lambda: setattr(WATCH, "at_write", act)


def denied(path: Path) -> Hook:
    """Hook: a file or folder may not be read, whoever one is."""
    return lambda: setattr(WATCH, "denied", str(path))


def command(words: Sequence[str]) -> Hook:
    """The job of a command line."""

    def job() -> None:
        from icl_lab.cli.main import main

        sys.argv = ["icl-lab", *words]
        main()

    return job


def ask(job: Hook, place: Path, before: Sequence[Hook] = (), most: float = 120.0) -> Answer:
    """Do a job in a process of its own, in a folder, for ``most`` seconds at most, and return how it ended.

    The process shares what is loaded with this one, so that it costs no time to begin.
    """
    with tempfile.TemporaryFile() as said:
        began, late = time.monotonic(), False
        number = os.fork()
        if not number:
            _child(job, place, before, said.fileno())
        while not (ended := os.waitpid(number, os.WNOHANG))[0]:
            if time.monotonic() > began + most:
                late = True
                os.kill(number, signal.SIGKILL)
            time.sleep(0.005)
        seconds = time.monotonic() - began
        said.seek(0)
        data = said.read()
    code = LATE if late else os.waitstatus_to_exitcode(ended[1])
    return replace(pickle.loads(data) if data else Answer(code), code=code, seconds=seconds)


def _child(job: Hook, place: Path, before: Sequence[Hook], said: int) -> None:
    code, streams = TRACEBACK, [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    try:
        sys.stdout, sys.stderr = streams
        torch.set_num_threads(1)
        os.chdir(place)
        WATCH.root = f"{place}/"
        for each in (*before, job):
            each()
        code = 0
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=streams[1])
        code = left.code if isinstance(left.code, int) else int(bool(left.code))
    except BaseException:
        traceback.print_exc(file=streams[1])
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            WATCH.root = ""
            out, err = (stream.buffer.getvalue().decode(errors="replace") for stream in streams)
            with open(said, "wb", closefd=False) as file:
                pickle.dump(Answer(code, out, err, written=WATCH.written, read=[*WATCH.read]), file)
        finally:
            os._exit(code)  # whatever happens: a fork that goes on would do the tests as well
