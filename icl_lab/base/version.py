"""Version and folder of this package, and the commit that it was built or checked out from."""

import subprocess
from pathlib import Path

VERSION = "0.3.0"
PACKAGE = Path(__file__).parents[1]
BUILT = "commit.txt"  # in a package that was built from a checkout: see hatch_build.py


def commit(here: Path = PACKAGE) -> str:
    """Return the commit of the source, ``-dirty`` where it was changed since; ``unknown`` where nothing says it.

    Results are not source: a study that was drawn again makes no later run dirty. A package that was built says what
    was written when it was; what lies inside somebody else's checkout is not of that commit.
    """
    if (here / BUILT).exists():
        return (here / BUILT).read_text(encoding="utf-8").strip()
    try:
        if here == PACKAGE and not _git(here, "ls-files", "--", "__init__.py"):
            return "unknown"
        name = _git(here, "describe", "--always", "--abbrev=12", "--exclude=*")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results")
        return f"{name}-dirty" if changed else name
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(here: Path, *words: str) -> str:
    # A checkout of another user is read all the same: nothing of it is run.
    git = ["git", "-c", "safe.directory=*", "-C", str(here), *words]
    return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
