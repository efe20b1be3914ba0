"""What a worker says of itself first, and whether it may work for this driver."""

import hashlib
import platform
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import icl_lab

Hello = Mapping[str, str]
UNKNOWN = "unknown"


@cache
def hello() -> dict[str, str]:
    """Returns versions, commit and a checksum of the source, Python, torch, host and device of this process."""
    import torch

    from icl_lab.runs import environment

    return {
        "icl_lab": icl_lab.__version__,
        "commit": environment.commit(),
        "source": source(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "host": socket.gethostname(),
        "device": environment.describe(environment.device("auto")),
    }


def source(folder: Path = Path(icl_lab.__file__).parent) -> str:
    """Returns a checksum of the package's own files: two changed checkouts of one commit differ in it."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        data = path.read_bytes()
        whole.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return whole.hexdigest()[:12]


def refusal(ours: Hello, theirs: Hello, place: str) -> str:
    """Returns one line that says why these two may not work together; empty where they may.

    They may where version, commit and source of icl_lab and the release of torch are the same (2.13.0+cpu and
    2.13.0+cu130 are one release). A package that was installed without its repository knows no commit: then the source
    decides.
    """
    # Whether a checkout was changed is the source's to say: that of a document changes nothing.
    commits = {said.get("commit", UNKNOWN).removesuffix("-dirty") for said in (ours, theirs)} - {UNKNOWN}
    same = len(commits) < 2 and all(ours.get(key) == theirs.get(key) for key in ("icl_lab", "source"))
    if same and _release(ours) == _release(theirs):
        return ""
    return f"{place} has {_words(theirs)}; here it is {_words(ours)}. Bring both to one state."


def _release(said: Hello) -> str:
    return said.get("torch", UNKNOWN).partition("+")[0]


def _words(said: Hello) -> str:
    known = {key: said.get(key, UNKNOWN) for key in ("icl_lab", "commit", "source", "torch")}
    return (
        f"icl_lab {known['icl_lab']} (commit {known['commit']}, source {known['source']}) with torch {known['torch']}"
    )
