"""What a build writes down: the commit that it was made from, so that an installed package can say it."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "icl_lab/commit.txt"


class Commit(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the commit into wheels and source distributions; what is built from such a distribution keeps its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the file, unless this is an editable installation, which asks git."""
        root = Path(self.root)
        if version == "editable" or (root / PLACE).exists() or not (root / ".git").exists():
            return
        git = ["git", "-c", "safe.directory=*", "-C", str(root)]
        try:
            name = _told([*git, "describe", "--always", "--abbrev=12", "--exclude=*"])
            changed = _told(
                [*git, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results"]
            )
        except (OSError, subprocess.SubprocessError):
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "commit.txt"
        file.write_text(f"{name}-dirty\n" if changed else f"{name}\n", encoding="utf-8")
        build_data["force_include"][str(file)] = PLACE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was only there to be packed."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _told(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
