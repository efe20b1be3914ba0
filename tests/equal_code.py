"""Write rows of icl_lab/runs/equal_code.csv: hashes of code that gives the same bits as that of an earlier commit.

    python tests/equal_code.py COMMIT

Both versions train golden recipes (Muon, AdamW with EMA, Adam, a switch of the normalizer), and each part whose hash
differs, and test the models. A row is written only where weights and cells are equal to the bit in the golden recipes
and, of a part, in its own; a difference is named, and the exit code is 1. Runs from before there were records know the
code of their parts alone: the hashes that they hold have rows too. An edit of numbers that no recipe reaches, such as
of the engine of CUDA graphs, is not found.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "icl_lab" / "runs" / "equal_code.csv"
COLUMNS = ("kind", "old", "new", "commit")
RECIPES = [
    *(["linear", "softmax", "train.optimizer=muon"], ["linear", "ssa", "train.optimizer=adamw", "train.ema=0.9"]),
    *(["linear", "softmax", "train.optimizer=adam"], ["every", "softmax"]),
    ["linear", "softmax", "train.switch_to=ssmax", "train.switch_step=1/2"],
]
COMMON = ["train.steps=60", "train.batch=8", "test.prompts=64"]
KINDS = ("model", "training", "measuring")

HASHES = """
import json
from icl_lab import normalizers, tasks
from icl_lab.model import positions
from icl_lab.base.errors import LabError
from icl_lab.runs.spec import resolve
try:
    from icl_lab.runs import provenance
except ImportError:  # a version from before there were records
    provenance = None
asked = [(task, "softmax", []) for task in tasks.names()]
asked += [("linear", attn, ["model.heads=4"]) for attn in normalizers.names()]
asked += [("linear", f"softmax+{name}", []) for name in normalizers.wrappers.names()]
asked += [("linear", "softmax", [f"model.positions={name}"]) for name in positions.registry.names()]
found = {}
for task, attn, settings in asked:
    try:
        spec = resolve(task, attn, "smoke", settings)
        for kind in ("training", "measuring") if provenance else ():
            for name, sha in provenance.now(spec, "", kind).code.items():
                found.setdefault(name, (sha, [task, attn, *settings]))
    except LabError:  # a part that does not fit, or lacks a file
        continue
    for registry in (tasks.registry, normalizers.registry, normalizers.wrappers, positions.registry):
        for name in (task, attn.rpartition("+")[2], "".join(settings).rpartition("=")[2]):
            if name in registry.names() and registry.source(name) is None:
                key, recipe = f"stored {registry.kind} {name!r}", [task, attn, *settings]
                if key not in found or found[key][1][:2] == ["linear", "softmax"]:  # the recipe that is about the part
                    found[key] = (registry.record(name)["sha256"], recipe)
print(json.dumps(found))
"""
BITS = """
import hashlib, json, sys, tempfile, torch
from pathlib import Path
from safetensors.torch import load
from icl_lab import pipeline
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
torch.set_num_threads(1)
found = []
for task, attn, *settings in json.loads(sys.argv[1]):
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Store(Path(folder)), torch.device("cpu"), say=lambda text: None)
        spec = resolve(task, attn, "smoke", settings)
        pipeline.sweep(spec, 0, lab)
        run = lab.store.run(spec, 0)
        weights = sorted(load(run.read("model.safetensors")).items())
        bits = b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in weights)
        found.append([hashlib.sha256(each).hexdigest() for each in (bits, run.read("grid.csv"))])
print(json.dumps(found))
"""


def ask(tree, code, *words):
    """What a version of the package prints, as JSON."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "ICL_LAB_EVIDENCE": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def recipes_of(kinds, where):
    """The recipes that both versions train: the golden ones, and one of each part that differs."""
    return [*RECIPES, *(where[kind] for kind in kinds if kind not in KINDS)]


def equal_rows(old, new, commit, asking=ask):
    """Rows of hashes that differ between two trees and give the same bits; and the recipes whose bits differ."""
    before, after = asking(old, HASHES), asking(new, HASHES)
    kinds = [kind for kind in after if kind in before and before[kind][0] != after[kind][0]]
    if not kinds:
        return [], []
    recipes = [[*recipe, *COMMON] for recipe in recipes_of(kinds, {kind: after[kind][1] for kind in kinds})]
    bits = [asking(tree, BITS, json.dumps(recipes)) for tree in (old, new)]
    others = [recipe for recipe, one, other in zip(recipes, *bits, strict=True) if one != other]
    golden = any([*recipe, *COMMON] in others for recipe in RECIPES)
    same = [kind for kind in kinds if not golden and (kind in KINDS or [*after[kind][1], *COMMON] not in others)]
    rows = [dict(zip(COLUMNS, (kind, before[kind][0], after[kind][0], commit), strict=True)) for kind in same]
    return rows, others


def main(commit):
    """Compare the tree as it is with a commit, and add the rows to the table."""
    named = ["git", "rev-parse", "--short=8", commit]  # "HEAD~2" is another commit tomorrow
    commit = subprocess.run(named, cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        old.mkdir()
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(old)], input=packed, check=True)
        rows, others = equal_rows(old, ROOT, commit)
    for recipe in others:
        print(f"other bits: {' '.join(recipe)}")
    with TABLE.open("a", newline="") as file:
        csv.DictWriter(file, COLUMNS, lineterminator="\n").writerows(rows)
    print(f"{len(rows)} rows written to {TABLE}")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
