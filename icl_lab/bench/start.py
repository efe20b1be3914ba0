"""Start-up time: of help, of imports and, when asked, of the set-up."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from icl_lab.bench.base import HOME, Bench, Measurement, alternate, child
from icl_lab.errors import RunFailed
from icl_lab.runs.environment import seconds

PART = "start"
STARTS = {
    "python": ("-c", "pass"),
    "import torch": ("-c", "import torch"),
    "icl-lab --help": ("-m", "icl_lab", "--help"),
    "import icl_lab.pipeline": ("-c", "import icl_lab.pipeline"),
}
AGAINST = {"icl-lab --help": "python", "import icl_lab.pipeline": "import torch"}


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields the start of a process that helps or imports, against one that does less; then the set-up, when asked."""
    bench.tick(PART, 0, 1, "")
    found = alternate([partial(child, *words) for words in STARTS.values()], bench.pairs, bench.device)
    times = dict(zip(STARTS, found, strict=True))
    for case, base in AGAINST.items():
        yield bench.quotient(PART, case, base, "x as fast", times[base], times[case])
    bench.tick(PART, 1, 1, "")
    if bench.setup:
        yield from set_up(bench)


def set_up(bench: Bench) -> Iterator[Measurement]:
    """Installs the laboratory into a new environment, by pip and by uv, and throws it away; needs the repository.

    What pip and uv keep from earlier downloads they use: the first one of all takes longer.
    """
    if not (HOME / "pyproject.toml").exists():
        bench.say(f"{PART}: the set-up is measured in a checkout of the repository only")
        return
    if not shutil.which("uv"):
        bench.say(f"{PART}: uv is not here, so only pip is measured")
    took: dict[str, float] = {}
    for tool in ("pip", *(["uv"] if shutil.which("uv") else [])):
        with tempfile.TemporaryDirectory(prefix="icl-lab-bench-") as folder:
            bench.say(f"{PART}: sets up a new environment with {tool}")
            took[tool] = seconds(partial(install, tool, Path(folder) / "venv"), bench.device)
        yield bench.row(PART, f"set-up with {tool}", "", took[tool], "seconds", seconds=took[tool])
    if "uv" in took:
        yield bench.row(PART, "set-up with uv", "pip", took["pip"] / took["uv"], "x as fast", seconds=took["uv"])


def install(tool: str, place: Path) -> None:
    """Install as the Makefile does: a new environment, the tested versions, the extra ``dev``."""
    python = str(place / "bin" / "python")
    what = ["-c", str(HOME / "constraints.txt"), "-e", f"{HOME}[dev]"]
    if tool == "uv":
        run("uv", "venv", "-q", "--python", sys.executable, str(place))
        run("uv", "pip", "install", "-q", "--python", python, *what)
    else:
        run(sys.executable, "-m", "venv", str(place))
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what)


def run(*words: str) -> None:
    """Runs a command; raises ``RunFailed`` with the last line of its complaint."""
    links = " ".join(os.environ.get("PIP_FIND_LINKS", "").split()).replace(" ", ",")  # as in the Makefile
    done = subprocess.run(words, capture_output=True, text=True, env={"UV_FIND_LINKS": links, **os.environ})
    if done.returncode:
        raise RunFailed(f"{words[0]} failed: {(done.stderr.strip().splitlines() or ['no word of why'])[-1]}")
