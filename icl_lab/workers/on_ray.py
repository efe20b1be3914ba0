"""Workers on a Ray cluster: for each an actor that holds its resources and passes bytes. The door to Ray.

Ray retries nothing here: it would start again from the checkpoint that was there at first. A node that a cut network
took away is not noticed by Ray for a job that runs on it; the supervisor's own silence deadline is what acts.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import icl_lab
from icl_lab.errors import BadValue
from icl_lab.workers.process import HERE, ProcessPipe

STUCK = 60.0  # seconds after which a call that ought to be short has failed


class Hands:
    """The actor: a worker's process on its node, with the package that the actor itself was imported from."""

    def __init__(self) -> None:
        root = str(Path(icl_lab.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        self._pipe = ProcessPipe((sys.executable, *HERE[1:]), local=False, env={**os.environ, "PYTHONPATH": path})

    def listen(self) -> Iterator[bytes]:
        """Yields what the worker says, as it comes."""
        while data := self._pipe.read():
            yield data

    def write(self, data: bytes) -> None:
        """Passes bytes on to the worker."""
        self._pipe.write(data)

    def hang_up(self) -> None:
        """Ends the worker's input."""
        self._pipe.hang_up()

    def how(self) -> tuple[int | None, list[str]]:
        """Returns the exit code of the worker and its last complaints."""
        self._pipe.wait(STUCK)
        return self._pipe.code(), list(self._pipe.complaints())


class RayPipe:
    """The bytes that an actor passes."""

    def __init__(self, ray: ModuleType, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._stream = actor.listen.options(num_returns="streaming").remote()
        self._ended = threading.Event()
        self._how: tuple[int | None, list[str]] = (None, [])
        self._sound = False  # whether the worker's voice ended in order

    def read(self) -> bytes:
        """Waits for the next bytes; raises ``OSError`` where the actor or its node died."""
        try:
            return bytes(self._ray.get(next(self._stream)))
        except StopIteration:
            self._sound = True
            self._ended.set()
            return b""
        except self._ray.exceptions.RayError as error:
            self._ended.set()
            raise OSError(_line(error)) from error

    def write(self, data: bytes) -> None:
        """Passes bytes; they arrive in order because each waits for the one before."""
        self._call(self._actor.write, data)

    def hang_up(self) -> None:
        """Ends the worker's input, where it is still there."""
        if not self._ended.is_set():
            self._actor.hang_up.remote()

    def interrupt(self) -> bool:
        """Reaches no worker by a signal."""
        return False

    def terminate(self) -> None:
        """Ends the worker: without its actor it stops by itself at its next step."""
        self.kill()

    def kill(self) -> None:
        """Ends the actor."""
        self._ray.kill(self._actor, no_restart=True)

    def wait(self, seconds: float) -> bool:
        """Waits for the end of what the worker says, and gives its resources back."""
        if not self._ended.wait(seconds):
            return False
        if self._sound and self._how == (None, []):
            try:
                self._how = self._call(self._actor.how)
            except OSError as error:
                self._how = (None, [str(error)])
        self.kill()
        return True

    def code(self) -> int | None:
        """Returns the worker's exit code, where it could still be asked for."""
        return self._how[0]

    def complaints(self) -> Sequence[str]:
        """Returns the worker's last complaints."""
        return self._how[1]

    def _call(self, method: Any, *words: Any) -> Any:
        try:
            return self._ray.get(method.remote(*words), timeout=STUCK)
        except self._ray.exceptions.RayError as error:
            raise OSError(_line(error)) from error


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that this process has joined."""

    ray: ModuleType
    at_once: int
    threads: int
    gpus: float
    name: str = "ray"
    remote: bool = True
    queues: bool = True

    def start(self) -> RayPipe:
        """Asks for an actor; it begins when there is room for it."""
        needs = {"num_cpus": self.threads, "num_gpus": self.gpus, "max_restarts": 0, "max_task_retries": 0}
        # One thread for what comes, one for what goes.
        return RayPipe(self.ray, self.ray.remote(Hands).options(**needs, max_concurrency=4).remote())

    def close(self) -> None:
        """Stays joined: the next runs of this command need it too, and Ray leaves with the process."""


def cluster(address: str, jobs: int | None, threads: int, gpus: float) -> Cluster:
    """Joins a cluster, or starts one here (``local``); ``jobs`` bounds the runs at once.

    Raises ``BadValue`` in one line where Ray is not installed, no cluster answers, or one would be open to everybody.
    """
    # Whoever reaches an open cluster runs code on it: https://github.com/advisories/GHSA-gx77-xgc2-4888
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        raise BadValue("--engine ray: RAY_AUTH_MODE leaves the cluster open to everybody; set it to 'token'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise BadValue("--engine ray needs Ray, which is not installed: pip install 'icl_lab[ray]'.") from None
    if not ray.is_initialized():
        _join(ray, address)
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) // threads)
    if gpus:
        room = min(room, int(there.get("GPU", 0) / gpus))
    if room < 1:
        raise BadValue(
            f"--engine ray: the cluster has {there.get('CPU', 0):.0f} CPUs and {there.get('GPU', 0):.0f} GPUs; a run "
            f"is to have {threads} and {gpus:g}."
        )
    return Cluster(ray, jobs or room, threads, gpus)


def _join(ray: ModuleType, address: str) -> None:
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host:  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), timeout=15).close()
        except (OSError, ValueError, OverflowError) as error:
            raise BadValue(f"--engine ray --address {address}: nothing answers there ({error}).") from None
    here = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **(here if address == "local" else {}), address=address)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise BadValue(f"--engine ray --address {address}: {_line(error)}") from error
    finally:
        for number, handler in handlers.items():  # Ray puts one of its own in place of ours
            signal.signal(number, handler)


def _line(error: BaseException) -> str:
    """The last line of what Ray says."""
    said = [text.strip() for text in str(error).splitlines() if text.strip()]
    return f"{type(error).__name__}: {said[-1] if said else ''}"
