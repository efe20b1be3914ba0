"""Lock of a run's folder; removal of stale temporary files."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from icl_lab.base.errors import Stopped
from icl_lab.base.files import unwritable

Say = Callable[[str], object]
LOOK = 0.5  # seconds between two looks at a lock that another process has


@contextmanager
def lock_folder(folder: Path, say: Say, stopping: Callable[[], bool], needless: bool) -> Iterator[bool]:
    """Hold a folder for this process; a second process says that it waits, and then waits.

    Yields whether it is held. A folder that cannot be written is not held, which is an error unless ``needless``
    (nothing will be written). Raises ``Stopped`` when ``stopping()`` turns true while it waits, ``RunFailed`` where the
    folder cannot be written.
    """
    lock = FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = _acquired(lock, 0)
    except OSError as error:
        if not needless:
            raise unwritable(folder, error) from error
        yield False
        return
    if not free:
        say(f"another process is working on {folder}; waiting for it.")
        while not _acquired(lock, LOOK):
            if stopping():
                raise Stopped("stopped while waiting for another process.")
    try:
        yield True
    finally:
        lock.release()


def remove_stale(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files of interrupted writes of these files.

    Only while the folder is held: then nobody else writes them.
    """
    for place in (folder, *folder.glob("swap-*")):
        for name in names:
            for left in place.glob(f".{name}-*"):
                left.unlink()


def _acquired(lock: FileLock, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True
