"""Files that appear whole or not at all."""

import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from icl_lab.base.errors import BadValue, RunFailed

PACKED = ".xz"  # ends the name of a large table that is kept compressed


def publish(path: Path, data: bytes) -> None:
    """Write a file atomically: to a temporary file in its folder, synchronised, then renamed.

    Devices and pipes (``/dev/null``) are written into directly.
    """
    if special(path):
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(path.parent, f".{path.name}-")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            _locked(file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # Temporary files are private; results are for everyone the folder's owner lets in.
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _sync(path.parent)  # the new name is on the disk as well, should the power fail


def special(path: Path) -> bool:
    """True if a path is a device, a pipe or a socket, or an alias of one in ``/dev``, as ``/dev/stdout``."""
    return (path.exists() and not path.is_file()) or path.absolute().parent in (Path("/dev"), Path("/dev/fd"))


@contextmanager
def staging(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a temporary folder that is removed afterwards; what a killed process left under that prefix goes first."""
    remove_stale(parent, prefix)
    with tempfile.TemporaryDirectory(dir=parent, prefix=prefix) as staged:
        number = os.open(staged, os.O_RDONLY) if os.name == "posix" else None
        try:
            if number is not None:
                _locked(number)
            yield Path(staged)
        finally:
            if number is not None:
                os.close(number)


def remove_stale(parent: Path, prefix: str) -> None:
    """Remove temporary files and folders under a prefix whose writers are gone.

    A writer locks its temporary file; the system releases the lock when the writer ends, however it ends.
    """
    if os.name != "posix":
        return
    for path in parent.glob(f"{glob.escape(prefix)}*"):
        try:
            number = os.open(path, os.O_RDONLY)
        except OSError:  # moved to its place meanwhile, or another user's
            continue
        try:
            if _locked(number):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        finally:
            os.close(number)


def _locked(number: int) -> bool:
    """Lock an open file or folder for this process; False where another one holds it, or without file locks."""
    if os.name != "posix":
        return False
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write(path: Path, data: bytes) -> None:
    """Publish a file; raises ``RunFailed`` where it cannot be written."""
    with writing(path):
        publish(path, data)


def check_new(folder: Path) -> None:
    """Raise ``BadValue`` where a folder holds something."""
    if folder.exists() and any(folder.iterdir()):
        raise BadValue(f"{folder} is not empty: name a new folder.")


def made(folder: Path) -> Path:
    """Return a folder that is there, made if it was not: before what takes long is computed for it.

    Raises ``RunFailed`` where it cannot be.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256(data: bytes) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def data_folder() -> Path:
    """Folder of the user's data of this package: in ``XDG_DATA_HOME``, ``LOCALAPPDATA`` or ``~/.local/share``."""
    named = (os.environ.get(name, "") for name in ("XDG_DATA_HOME", "LOCALAPPDATA"))
    usual = Path("~/.local/share").expanduser()
    return next((Path(each) for each in named if Path(each).is_absolute()), usual) / "icl_lab"


def checkout_hint(path: Path) -> str:
    """Command that brings back a damaged file of the repository, or of evidence that was fetched."""
    if path.is_relative_to(data_folder()):
        return "fetch it again: icl-lab evidence fetch"
    return f"take it from the repository again: git checkout {path}"


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what goes wrong in writing into ``RunFailed``, naming the file or folder."""
    try:
        yield
    except OSError as error:
        raise unwritable(place, error) from error


@contextmanager
def reading(path: Path, advice: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn what goes wrong in reading a file into ``RunFailed``, which ends with advice."""
    try:
        yield
    except errors as error:
        raise RunFailed(f"{path} cannot be read: {error}; {advice}.") from error


def unwritable(place: Path, error: OSError) -> RunFailed:
    """Return the complaint about a file or folder that cannot be written."""
    return RunFailed(f"{place} cannot be written: {error.strerror or error}.")


def present(path: Path) -> Path | None:
    """Return the file, or its compressed copy ``<name>.xz`` where a large table is kept as such; None without either.

    ``Grid.read`` and ``pandas.read_csv`` take both.
    """
    return next((each for each in (path, path.with_name(f"{path.name}{PACKED}")) if each.exists()), None)


def replace_folder(folder: Path, data: Mapping[str, bytes], ours: Container[str] = ()) -> None:
    """Replace a folder by one with these files, in one step.

    Existing files named in ``ours`` are removed, and all others stay. The caller must hold the folder's lock. Raises
    ``RunFailed`` where it cannot be written; then all is as it was.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        restore_folder(folder)
        # The staged folder itself is moved: a process that is killed after the move leaves nothing.
        with staging(folder.parent, staged_prefix(folder)) as whole:
            for name, content in data.items():
                publish(whole / name, content)
            whole.chmod(0o777 & ~_umask())
            for path in folder.iterdir() if folder.exists() else ():
                if path.name not in data and path.name not in ours:
                    (shutil.copytree if path.is_dir() else shutil.copy2)(path, whole / path.name)
            swap_folder(folder, whole)
    except OSError as error:
        restore_folder(folder)
        raise unwritable(folder, error) from error


def staged_prefix(folder: Path) -> str:
    """Beginning of the names of temporary folders in which the files of a folder are written first."""
    return f".{folder.name}-staged-"


def swap_folder(folder: Path, whole: Path) -> None:
    """Put the folder ``whole``, which lies on the same disk, in the place of another one and remove that.

    Where the second move fails or is interrupted, the first one is back; after a kill, ``restore_folder`` does that.
    """
    before = _before(folder)
    try:
        if folder.exists():
            folder.rename(before)
        whole.rename(folder)
    except BaseException:  # Ctrl-C too
        restore_folder(folder)
        raise
    shutil.rmtree(before, ignore_errors=True)
    _sync(folder.parent)


def restore_folder(folder: Path) -> None:
    """Put back a folder whose replacement was cut short between its two moves, and remove one that was replaced."""
    before = _before(folder)
    if before.exists():
        if folder.exists():
            shutil.rmtree(before, ignore_errors=True)
        else:
            before.rename(folder)


def cut_short(folder: Path) -> bool:
    """True if the replacement of a folder was interrupted, so that the old one is still set aside."""
    return _before(folder).exists()


def _before(folder: Path) -> Path:
    """Temporary place of a folder while another takes its place."""
    return folder.with_name(f".{folder.name}-replaced")


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
