"""What a build writes down: its commit, the evidence of its release (docs/release.py), and README for an index.

An index shows neither this repository's pictures nor its pages, and has no ``make``.
"""

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

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


class Readme(MetadataHookInterface):
    """README without what is dead on an index."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the text."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": indexed(text)}


def indexed(text: str) -> str:
    """README with commands of ``icl-lab`` for those of ``make``, without pictures, comments, the tree and its pages."""
    for dead in (
        r"<picture>.*?</picture>\n\n.*?\n\n",  # with its caption
        r"\n? *<!--.*?-->",
        r"## Where things are\n.*(?=`CITATION)",
        r"The first command installs [^)]*\)\. ",
    ):
        text = re.sub(dead, "", text, flags=re.DOTALL)
    text = re.sub(r"\[((?:[^][]|\[[^][]*\])*)\]\((?!https?://)[^)\s]+\)", r"\1", text)
    return re.sub(r"\bmake (?!test|bench)([a-z-]+)((?: [A-Z]+=(?:\"[^\"]*\"|[^\s`\",;)]+))*)", _typed, text)


def _typed(make: re.Match[str]) -> str:
    """A command of make as one of the program: variables are options, ARGS further words, NAME an experiment."""
    words = ["icl-lab", make[1]]
    for given in shlex.split(make[2]):
        name, _, value = given.partition("=")
        words += shlex.split(value) if name == "ARGS" else [value] if name == "NAME" else [f"--{name.lower()}", value]
    return shlex.join(words)


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
