"""Evidence of a release: one archive, checked, then unpacked whole into the user's data folder.

The archive is a tar.gz of ``results/`` as the repository holds it, below a folder that names the version (see
``docs/release.py``). Its checksum is a line as ``sha256sum`` writes it: in the package, where that was built for a
release, with the address in place of the file's name; else in ``FILE.sha256``.
"""

import io
import re
import tarfile
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, RunFailed, first_line
from icl_lab.base.files import made, replace_folder, sha256
from icl_lab.base.version import PACKAGE, VERSION
from icl_lab.runs.evidence.archive import INDEX, LOCK, fetched, sealed

BUILT = PACKAGE / "evidence.txt"  # in a package of a release: see hatch_build.py
TOP = f"icl_lab-evidence-{VERSION}"
LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)\s*")
MOST = 2**28  # bytes of an archive, packed or not
PATIENCE = 60.0  # seconds without a byte


def fetch(file: Path | None = None, checksum: str = "") -> Path:
    """Unpack the archive of this release into the user's data folder; return the folder of its evidence.

    Without a ``file`` it comes from the address that the package was built with. Its SHA-256 is ``checksum``, else that
    of the package, else of ``FILE.sha256``. What was fetched before is replaced in one step. Raises ``RunFailed`` or
    ``BadValue``, with the data folder as it was, where the archive is not that of this release.
    """
    if checksum and not re.fullmatch("[0-9a-f]{64}", checksum):
        raise BadValue(f"a SHA-256 has 64 hexadecimal digits (0-9, a-f), got '{checksum}'.")
    built = _line(BUILT) if BUILT.exists() else None
    if file is not None:
        source, data = str(file), _read(file)
    elif built and built[1].startswith("https://"):
        source, data = built[1], _download(built[1])
    else:
        raise BadValue("this copy does not know where its release lies: name the archive with --from FILE.")
    wanted = checksum or (built or _line(Path(f"{file}.sha256")))[0]
    if (found := sha256(data)) != wanted:
        raise RunFailed(f"{source} has SHA-256 {found}, not {wanted}: it was cut short, or is of another release.")
    try:
        files = _unpacked(data)
        _check_parts(files)
    except (ValueError, zlib.error, tarfile.TarError) as error:
        raise RunFailed(f"{source} is not the evidence of icl_lab {VERSION}: {first_line(error)}.") from None
    folder = fetched().parent
    with FileLock(made(folder.parent) / LOCK):
        replace_folder(folder, files, ours=[path.name for path in folder.glob("*")])
    return fetched()


def _line(path: Path) -> tuple[str, str]:
    """Checksum and name, or address, in a line of ``sha256sum``."""
    found = LINE.fullmatch(_read(path, ", nor is there a --sha256").decode(errors="replace"))
    if found is None:
        raise RunFailed(f"{path} holds no SHA-256 as sha256sum writes it.")
    return found[1], found[2]


def _read(file: Path, instead: str = "") -> bytes:
    try:
        return foreign.read(file, MOST)
    except OSError as error:
        raise RunFailed(f"{file} cannot be read: {error.strerror or error}{instead}.") from None


def _download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return bytes(answer.read(MOST))
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", "") or first_line(error)
        raise RunFailed(f"{address} cannot be read: {why}; or name the archive with --from FILE.") from None


def _unpacked(data: bytes) -> dict[str, bytes]:
    """Files of an archive by their names below its folder; raises ``ValueError`` on anything but plain files."""
    gzip = zlib.decompressobj(wbits=31)
    raw, files = gzip.decompress(data, MOST), dict[str, bytes]()
    if not gzip.eof:
        raise ValueError(f"it was cut short, or holds more than {MOST:,} bytes")
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        for member in tar:
            top, *inside = member.name.split("/")
            if member.size < 0 or not member.isreg() or member.issparse():
                raise ValueError(f"{member.name!r} is no plain file")
            if top != TOP:
                raise ValueError(f"it holds {top!r}, not {TOP!r}")
            if not inside or not all(map(foreign.is_plain, inside)):
                raise ValueError(f"{member.name!r} is no plain name")
            content = tar.extractfile(member)
            files["/".join(inside)] = content.read() if content else b""
    return files


def _check_parts(files: dict[str, bytes]) -> None:
    """Raise ``ValueError`` unless the evidence among the files is whole."""
    place = fetched().name
    for part in sealed(files.get(f"{place}/{INDEX}", b"")):
        for name, file in part.files.items():
            if sha256(files.get(f"{place}/{part.name}/{name}", b"")) != file.sha256:
                raise ValueError(f"{place}/{part.name}/{name} is damaged")
