"""Files of a release, written into ``dist/``: evidence with its checksum, source distribution and wheel.

``python -m docs.release``; with ``--address https://HOST/FOLDER`` of where they will lie, so that ``icl-lab evidence
fetch`` of the wheel finds the archive there. What git holds is packed: the same commit gives the same bytes.
"""

import argparse
import gzip
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from icl_lab.base.files import sha256
from icl_lab.base.version import VERSION
from icl_lab.runs.evidence.release import TOP

ROOT = Path(__file__).parents[1]
NAME = f"{TOP}.tar.gz"


def packed(root: Path) -> bytes:
    """Return the archive of ``results/`` as the last commit holds it, without hidden files.

    Raises ``SystemExit`` where files differ from the commit.
    """
    git = ["git", "-C", str(root)]
    if subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "results"], check=False).returncode:
        sys.exit("results/ is not as the last commit holds it: commit it first.")
    listed = subprocess.run([*git, "ls-files", "-z", "--", "results"], capture_output=True, text=True, check=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(name for name in listed.stdout.split("\0") if name and "/." not in name):
            data = (root / name).read_bytes()
            member = tarfile.TarInfo(f"{TOP}/{name.removeprefix('results/')}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def main() -> None:
    """Write the files, and check the metadata where twine is installed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", default="", help="https:// and the folder where the files will lie")
    parser.add_argument("--to", default=ROOT / "dist", type=Path, help="folder")
    given = parser.parse_args()
    if given.address and not given.address.startswith("https://"):
        parser.error("an address begins with https://")
    given.to.mkdir(parents=True, exist_ok=True)
    archive = packed(ROOT)
    (given.to / NAME).write_bytes(archive)
    (given.to / f"{NAME}.sha256").write_text(f"{sha256(archive)}  {NAME}\n")
    place = f"{given.address.rstrip('/')}/{NAME}" if given.address else NAME
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(given.to.absolute())]
    subprocess.run(build, cwd=ROOT, check=True, env=os.environ | {"ICL_LAB_RELEASE": f"{sha256(archive)}  {place}"})
    if importlib.util.find_spec("twine") is None:
        print("twine is not installed: the metadata were not checked", file=sys.stderr)
    else:
        packages = [str(path) for path in sorted(given.to.glob(f"icl_lab-{VERSION}*"))]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *packages], check=True)
    for path in sorted(given.to.iterdir()):
        print(path)


if __name__ == "__main__":
    main()
