"""Executes the notebooks in a folder of their own, and keeps their outputs in them: ``make notebooks``."""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHOWN = ("text/html", "image/png", "text/plain")  # of what a cell shows, the first that there is
SECONDS = 600  # for one cell


def sources(notebook: dict[str, Any]) -> str:
    """Returns the hash of what a notebook's cells say, without their outputs."""
    told = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Returns a notebook with what its cells show; raises where one fails."""
    import nbformat
    from nbclient import NotebookClient

    # No runs but those that it makes itself.
    os.environ["ICL_LAB_EVIDENCE"] = ""
    with tempfile.TemporaryDirectory() as folder:
        node = nbformat.reads(json.dumps(notebook), as_version=4)
        resources = {"metadata": {"path": folder}}
        NotebookClient(node, timeout=SECONDS, kernel_name="python3", resources=resources).execute()
    done: dict[str, Any] = json.loads(nbformat.writes(node))
    done["metadata"] = {**notebook["metadata"], "sources": sources(notebook)}
    for cell in done["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["outputs"] = [_bare(each) for each in cell["outputs"] if each.get("name") != "stderr"]
    return done


def _bare(output: dict[str, Any]) -> dict[str, Any]:
    """An output in one form only, the richest."""
    if "data" not in output:
        return output
    kind = next(kind for kind in SHOWN if kind in output["data"])
    about = {name: told for name, told in output["metadata"].items() if name == kind}
    return {**output, "data": {kind: output["data"][kind]}, "metadata": about}


def main(names: list[str]) -> None:
    """Executes all notebooks, or those that are named."""
    for path in sorted(HERE.glob("*.ipynb")):
        if not names or path.stem in names:
            done = execute(json.loads(path.read_text(encoding="utf-8")))
            path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"executed {path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
