"""The folder of a site: built in a temporary folder and moved there whole, and never over files of somebody else."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from icl_lab.base import foreign as elsewhere
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.files import restore_folder, staging, swap_folder, writing

MARK = ".icl-lab-site.json"  # names the files that were written, so that others are distinguished from them


def check(out: Path, results: Path, force: bool) -> None:
    """Raise ``BadValue`` where a site may not be written to a folder; asked before anything is built.

    A folder that holds what no site wrote is only added to with ``force``; one that holds the results or the current
    folder is never replaced, nor is one inside the runs.
    """
    place, here = out.resolve(), Path.cwd().resolve()
    kept = results.resolve()
    if place in (here, kept, *here.parents, *kept.parents):
        raise BadValue(f"--out {out} holds the results or this folder; name one of its own.")
    if any(place.is_relative_to(kept / name) for name in ("runs", "evidence")):
        raise BadValue(f"--out {out} lies among the runs; name a folder of its own.")
    if out.is_symlink():
        raise BadValue(f"--out {out} is a link; name the folder itself.")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        restore_folder(out)
    others = foreign(out)
    if others and not force:
        what = others[0] + (f" and {len(others) - 1} more" if len(others) > 1 else "")
        raise BadValue(f"{out} holds what was not made by icl-lab site ({what}); name another --out, or use --force.")


def foreign(out: Path) -> list[str]:
    """Return the files in a folder that no site wrote, sorted."""
    if not out.exists():
        return []
    try:
        known = set(json.loads(elsewhere.shallow(elsewhere.read(out / MARK, elsewhere.MOST_TEXT)))["files"])
    except (OSError, ValueError, KeyError, TypeError):  # none, or none of ours: then nothing is
        known = set()
    there = (path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(name for name in there if name != MARK and name not in known)


def write(site: Mapping[str, bytes | Path], out: Path) -> int:
    """Write a site in place of the one that is there, in one step; return the bytes. What others put there stays.

    Stopped at any time, the folder holds the old site or the new one. Raises ``RunFailed`` where it cannot be written.
    """
    with writing(out), staging(out.parent, f".{out.name}-building-") as staged:
        whole, size = staged / out.name, 0
        for name, content in site.items():
            path = whole / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                _copy(content, path)
            else:
                path.write_bytes(content)
            size += path.stat().st_size
        (whole / MARK).write_text(json.dumps({"files": sorted(site)}))
        for name in foreign(out):
            if name not in site:
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(out / name, whole / name, follow_symlinks=False)
        swap_folder(out, whole)
        return size


def _copy(source: Path, path: Path) -> None:
    """Copy a file; raises ``RunFailed``, naming it, where it cannot be read."""
    try:
        data = source.read_bytes()
    except OSError as error:
        raise RunFailed(f"{source} cannot be read: {error.strerror or error}.") from error
    path.write_bytes(data)
