"""What a build writes down: the commit that it was made from, and the evidence of its release (docs/release.py)."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT, EVIDENCE = "icl_lab/commit.txt", "icl_lab/evidence.txt"


class Commit(BuildHookInterface):  # type: ignore[type-arg]
    """Puts both into wheels and source distributions; what is built from such a distribution keeps its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files, unless this is an editable installation, which asks git."""
        if version == "editable":
            return
        root = Path(self.root)
        self._folder = tempfile.TemporaryDirectory()
        for place, text in {COMMIT: _commit(root), EVIDENCE: os.environ.get("ICL_LAB_RELEASE", "")}.items():
            if text and not (root / place).exists():
                file = Path(self._folder.name) / Path(place).name
                file.write_text(f"{text}\n", encoding="utf-8")
                build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was only there to be packed."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _commit(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]
    try:
        name = _told([*git, "describe", "--always", "--abbrev=12", "--exclude=*"])
        changed = _told([*git, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results"])
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{name}-dirty" if changed else name


def _told(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
