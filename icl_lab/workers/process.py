"""Workers as processes: of this machine, or behind a command that leads to another one (ssh, srun, kubectl exec)."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from icl_lab.workers.protocol import CHUNK

HERE = (sys.executable, "-m", "icl_lab", "work")
# Never asks for a password, and notices by itself within a minute that the other side is gone.
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")


class ProcessPipe:
    """A process with pipes."""

    def __init__(self, command: Sequence[str], local: bool, env: Mapping[str, str] | None = None) -> None:
        # A group of its own: Ctrl-C reaches the driver alone, which passes it on once, not twice. But no session of its
        # own: where the system shares cores by session, `nice` would mean nothing to it.
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0, env=env)
        self._local = local
        self._said: deque[str] = deque(maxlen=20)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def read(self) -> bytes:
        """Waits for bytes of standard output."""
        out = self._process.stdout
        if out is None or out.closed:
            return b""
        data = os.read(out.fileno(), CHUNK)
        if not data:
            out.close()
        return data

    def write(self, data: bytes) -> None:
        """Writes to standard input."""
        into = self._process.stdin
        if into is not None:
            into.write(data)
            into.flush()

    def hang_up(self) -> None:
        """Closes standard input."""
        with suppress(OSError):  # what it did not take is lost
            if self._process.stdin is not None:
                self._process.stdin.close()

    def interrupt(self) -> bool:
        """Sends SIGINT to a process of this machine."""
        if self._local:
            self._process.send_signal(signal.SIGINT)
        return self._local

    def terminate(self) -> None:
        """Sends SIGTERM to the process and what it has started."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to the process and what it has started."""
        self._signal(signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Waits for the process to end."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._listener.join(1.0)
        return True

    def code(self) -> int | None:
        """Returns the exit code."""
        return self._process.poll()

    def complaints(self) -> Sequence[str]:
        """Returns the last lines of standard error."""
        return list(self._said)

    def _signal(self, number: int) -> None:
        # Until it is waited for, the group keeps the number of its first process.
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _listen(self) -> None:
        if self._process.stderr is not None:
            with self._process.stderr as said:
                self._said.extend(text.decode(errors="replace") for text in said)


@dataclass(frozen=True)
class Local:
    """A place that is this machine: workers share its file system."""

    at_once: int
    command: Sequence[str] = HERE
    name: str = "here"
    remote: bool = False
    queues: bool = False

    def start(self) -> ProcessPipe:
        """Starts a process."""
        return ProcessPipe(self.command, local=True)

    def close(self) -> None:
        """Holds nothing."""


@dataclass(frozen=True)
class Behind:
    """Another machine, reached by a command that carries standard input, output and error."""

    name: str
    command: Sequence[str]
    at_once: int = 1
    queues: bool = True
    remote: bool = True

    def start(self) -> ProcessPipe:
        """Starts the command."""
        return ProcessPipe(self.command, local=False)

    def close(self) -> None:
        """Holds nothing."""


def host(name: str, at_once: int, program: str) -> Behind:
    """Returns a host that ssh reaches; ``program`` starts icl-lab there, read by the login shell there."""
    return Behind(name, (*SSH, name, f"{program} work"), at_once, queues=False)


def prefix(words: str, at_once: int, program: str) -> Behind:
    """Returns what a command leads to, such as ``srun -N1 -n1``; ``program`` follows it word by word."""
    return Behind(words, (*shlex.split(words), *shlex.split(program), "work"), at_once)
