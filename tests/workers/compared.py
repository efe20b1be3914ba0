"""What of two results folders is compared, bit by bit, where one was made elsewhere."""

from icl_lab.runs.store import Store
from icl_lab.workers.folder import names

TIMED = ("env.json", "manifest.json")  # the one holds times, the other its checksum


def contents(root):
    """The files of all runs in a results folder, but for those that hold times."""
    found = {}
    for run in Store(root).runs():
        found |= {f"{run.key}/{n}": (run.folder / n).read_bytes() for n in names(run.folder) if n not in TIMED}
    return found
