"""Files from elsewhere: bounds on their size, and names that stay inside a folder.

A checksum of a file says that it arrived whole, not who wrote it. So a file is a regular one of bounded size, its text
is of bounded nesting before a parser sees it, and a name that it gives is one plain word before a path is made.
"""

import errno
import os
import re
import stat
from itertools import accumulate
from pathlib import Path

MOST = 2**35  # bytes of a file of weights
MOST_TEXT = 2**26  # bytes of a text that a parser reads
DEPTH = 64  # brackets inside one another
DOTS = 32  # dots in a name of TOML

# Strings of JSON and TOML and comments of TOML: what stands in them nests nothing. One that is never closed ends with
# its line or text, so that no character is looked at twice.
QUOTED = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^']|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
BETWEEN_NAMES = re.compile(r"[=,{}\[\]\n]")
SEED = re.compile(r"seed-(0|[1-9][0-9]{0,9})")


def read(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a regular file, or of the one that a link leads to.

    Raises ``OSError`` where it cannot be read, is a folder, a pipe or a device, or has more than ``most`` bytes.
    """
    state = path.stat()
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device", str(path))
    if state.st_size > most:
        raise OSError(errno.EFBIG, f"it has {state.st_size:,} bytes, at most {most:,} are read", str(path))
    return path.read_bytes()


def shallow(data: bytes) -> str:
    """Return a text of JSON or TOML, without its byte order mark, once its nesting is known to be bounded.

    Raises ``ValueError`` where it is not UTF-8, has too many bytes, brackets inside one another, or dots in a name.
    """
    if len(data) > MOST_TEXT:
        raise ValueError(f"it has {len(data):,} bytes, at most {MOST_TEXT:,} are read")
    text = data.decode("utf-8-sig")
    bare = QUOTED.sub('"', text)
    if max(accumulate(1 if each in "[{" else -1 for each in re.findall(r"[\[{\]}]", bare)), default=0) > DEPTH:
        raise ValueError("it is nested too deeply")
    if max(name.count(".") for name in BETWEEN_NAMES.split(bare)) > DOTS:
        raise ValueError("it has a name of too many dotted parts")
    return text


def is_plain(name: str) -> bool:
    """True if a name is one word that names a file or folder in the folder where it is used, on every system."""
    # A dot comes first in names of hidden files and in "..", a colon after a drive.
    return name.isprintable() and name == name.strip() != "" and name[0] != "." and not set(name) & set("/\\:")


def is_key(key: str) -> bool:
    """True if a run is named by four plain words, ``<task>/<attn>/<preset>-<hash>/seed-<k>``."""
    words = key.split("/")
    return len(words) == 4 and all(map(is_plain, words)) and SEED.fullmatch(words[-1]) is not None
