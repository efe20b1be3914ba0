"""What became of each fault, and the table of them all."""

import os
from collections import Counter
from pathlib import Path

from icl_lab import markdown as md

FULL = os.environ.get("ICL_LAB_TORTURE") == "full"
PART, PARTS = map(int, os.environ.get("ICL_LAB_TORTURE_PART", "0/1").split("/"))  # of several processes
TO = os.environ.get("ICL_LAB_TORTURE_TO", "")  # a folder that tables are written to
BAD = ("lost", "silent", "traceback")


class Tally:
    """Counts of faults by kind, to how many commands or files, and what is wrong with how they ended."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.to: dict[str, set[str]] = {}
        self.bad: Counter[tuple[str, str]] = Counter()
        self.notes: list[str] = []

    @property
    def faults(self) -> int:
        """How many ended badly."""
        return sum(self.bad.values())

    def count(self, kind: str, to: str, what: str, outcome: str = "", note: str = "") -> None:
        """Counts a fault."""
        self.done[kind] += 1
        self.to.setdefault(kind, set()).add(to)
        if outcome:
            self.amend(kind, to, what, outcome, note)
        if TO and self.done[kind] % 20 == 0:
            with (Path(TO) / "progress.txt").open("a") as file:
                file.write(f"{kind} {self.done[kind]}\n")

    def amend(self, kind: str, to: str, what: str, outcome: str, note: str) -> None:
        """Notes that a fault which is counted ended badly."""
        self.bad[kind, outcome] += 1
        self.notes.append(f"{kind}, {to}, {what}: {outcome}. {note}")
        if TO:  # at once: the whole takes long
            with (Path(TO) / "notes.txt").open("a") as file:
                file.write(f"{self.notes[-1]}\n")

    def table(self) -> str:
        """Returns the table and what ended badly, as Markdown."""
        lines = md.head(["kind", "commands or files", "count", *BAD])
        for kind, count in self.done.items():
            ends = [str(self.bad[kind, outcome]) for outcome in BAD]
            lines.append(md.row([kind, str(len(self.to[kind])), str(count), *ends]))
        return "\n".join([*lines, "", *(f"* {note}" for note in self.notes), ""])

    def write(self, name: str) -> None:
        """Prints the table, and writes it to the folder that is asked for."""
        print(self.table())
        if TO:
            (Path(TO) / f"{name}.md").write_text(self.table())
