"""Commands that write and commands that read, and the folder that they are typed in."""

import importlib
import os
import pkgutil
import re
import shutil
from functools import cached_property
from pathlib import Path

import torch

import icl_lab
from tests.byte_tokens import write_tokenizer
from tests.cli.test_report import ANALYSED, QUICK
from tests.one_pixel import one_pixel_pictures
from tests.prompted.conftest import answered, completion
from tests.torture.process import Answer, Hook, ask, at_write, command

SMALL = {"train.steps": "12", "train.batch": "4", "model.width": "8", "model.layers": "1", "model.heads": "2"}
SMALL["test.prompts"] = "16"
AXES = {"test.axes.length": "5,12", "test.axes.sigma_f": "1,4", "test.axes.sigma_x": "1"}
SET, CELLS = ([word for each in of.items() for word in ("--set", "=".join(each))] for of in (SMALL, AXES))
LINEAR = ["--task", "linear", "--preset", "smoke", *SET, *CELLS]
NEEDLE = ["--preset", "smoke", *SET, "--set", "test.axes.length=32,48", "--set", "test.axes.depth=50"]
EVERY = ["--preset", "smoke", *SET, "--set", "test.axes.length=5,12"]
BOTH = ["--attn", "softmax", "--attn", "ssa"]
LM = ["--text", "book.txt", "--windows", "2", "--length", "24"]
ASKED = ["--task", "linear", "--preset", "smoke", "--prompts", "2", "--shots", "5"]
ASKED += ["--model", "stub", "--set", "test.axes.sigma_f=1,2", "--set", "test.axes.sigma_x=1", "--answer-tokens", "3"]
TINY = ANALYSED.replace(QUICK, "[SETTINGS]")
TABLE = re.sub(r"analysis = .*\n|\[options\]\n(.+\n)+", "", TINY).replace("factor = [10]", "sigma_f = [4]")
TABLE = TABLE.replace("factor", "sigma_f") + '[[variants]]\nname = "ssa"\nattn = "ssa"\n'
PAGE = "# Parts\n\n<!-- index tasks -->\n<!-- end -->\n"

# Commands that write, each from a folder with nothing stored.
FROM_NOTHING: dict[str, list[str]] = {
    "sweep": ["sweep", *LINEAR, "--attn", "ssa"],
    "sweep --swap": ["sweep", *LINEAR, "--attn", "softmax", "--swap", "ssa"],
    "compare": ["compare", *LINEAR, *BOTH, "--seeds", "2"],
    "ablate": ["ablate", *LINEAR, "--attn", "softmax"],
    "experiment": ["experiment", "table", "--preset", "smoke", "--seeds", "2"],
    "experiment (analysis)": ["experiment", "tiny", "--preset", "smoke", "--seeds", "2"],
    "experiment --until-decided": ["experiment", "tiny", "--preset", "smoke", "--until-decided", "--budget", "2m"],
    "boundary": ["boundary", *LINEAR, "--attn", "ssa", "--slopes", "3", "--scales", "1", "--contexts", "16"],
    "attention": ["attention", "--prompt", "1,-2,3,70", "--means", "2", "--task", "every", *EVERY, *BOTH],
    "deviant": ["deviant", *LINEAR, "--attn", "ssa", "--factors", "1,10", "--prompts", "8"],
    "heads": ["heads", *LINEAR, "--attn", "ssa", "--prompts", "8"],
    "saturation": ["saturation", *LINEAR, "--attn", "ssa", "--factors", "10", "--prompts", "8"],
    "probe": ["probe", "--task", "every:balance=half", *EVERY, "--attn", "ssa", "--factors", "10"],
    "per-position": ["per-position", *LINEAR, "--attn", "ssa", "--prompts", "8", "--length", "40"],
    "equivariance": ["equivariance", *LINEAR, "--attn", "ssa", "--scales", "1,10", "--prompts", "8"],
    "needle": ["needle", *NEEDLE, "--attn", "ssmax", "--length", "32", "--trials", "4"],
    "law": ["law", "--task", "needle", *NEEDLE],
    "learning": ["learning", *LINEAR, *BOTH],
    "context": ["context", *LINEAR, "--attn", "ssa", "--lengths", "5,12", "--prompts", "8"],
    "theory": ["theory", "--rows", "8", "--keys", "2,8", "--attn", "softmax"],
    "lm": ["lm", "model", "--attn", "softmax,ssa", *LM],
    "prompted": ["prompted", *ASKED, "--read", "answers.jsonl"],
    "prompted --write": ["prompted", *ASKED, "--write", "made/requests.jsonl"],
    "functions": ["functions"],
    "costs": ["costs", "--lengths", "8", "--attn", "ssa", "--pairs", "1"],
}
# Commands from a folder in which these have been done.
DONE = ("compare", "sweep --swap", "experiment", "experiment (analysis)", "deviant", "boundary", "lm", "prompted")
FROM_STORED: dict[str, list[str]] = {
    "report": ["report"],
    "report (analysis)": ["report", "results/experiments/tiny-smoke"],
    "site": ["site"],
    "export": ["export", "STUDY", "--to", "csv", "--out", "made/table.csv"],
    "evidence add": ["evidence", "add"],
    "evidence add-studies": ["evidence", "add-studies"],
    "evidence unpack": ["evidence", "unpack", "--to", "unpacked"],
    "claims --record": ["claims", "--record"],
}
UNFINISHED = ["sweep", *LINEAR, "--attn", "ssmax"]
# Beside those above, commands that only read.
READING: dict[str, list[str]] = {
    "export": ["export", "STUDY"],
    "export (table)": ["export", "STUDY", "--table", "comparison", "--to", "csv"],
    "export (run)": ["export", "RUN", "--to", "csv"],
    "export (analysis)": ["export", "results/experiments/tiny-smoke", "--table", "deviant", "--to", "markdown"],
    "export (prompted)": ["export", "PROMPTED", "--table", "grid", "--to", "csv"],
    "export (lm)": ["export", "LMFOLDER", "--table", "loss", "--to", "csv"],
    "verify": ["verify"],
    "list runs": ["list", "runs", "--long"],
    "list experiments": ["list", "experiments"],
    "claims": ["claims"],
    "claims --preset": ["claims", "--preset", "smoke"],
    "evidence list": ["evidence", "list"],
    "evidence verify": ["evidence", "verify"],
    "report --out": ["report", "--out", "elsewhere"],
}
# Readers of what is stored: those above, what was done once more, and a run that was begun.
READERS: dict[str, list[str]] = {
    **{f"{name} again": FROM_NOTHING[name] for name in DONE},
    "sweep (unfinished)": UNFINISHED,
    **FROM_STORED,
    **{f"{name} (reading)" if name in FROM_STORED else name: words for name, words in READING.items()},
}
# Hold times, or the checksums of what does.
ANEW = ("env.json", "manifest.json", ".icl-lab-site.json", "measured.csv")
PLACES = {
    "RUN": "results/runs/linear/ssa/smoke-*/seed-0",
    "STUDY": "results/compare-linear-smoke-*",
    "PROMPTED": "results/prompted-*",
    "LMFOLDER": "results/lm-*",
}


class Ground:
    """Folders in which commands are typed: ``bare`` with files of the user alone, ``stored`` with results."""

    def __init__(self, root: Path) -> None:
        """Write the user's files."""
        _preload()
        self.root, self.bare = root, root / "bare" / "here"
        bare = self.bare
        (bare / "experiments").mkdir(parents=True)
        settings = ", ".join(f'"{name}={value}"' for name, value in (SMALL | AXES).items())
        for name, text in (("tiny", TINY), ("table", TABLE)):
            (bare / "experiments" / f"{name}.toml").write_text(text.replace("SETTINGS", settings))
        (bare / "book.txt").write_text("The quick brown fox jumps over the lazy dog 1234567890 times.\n" * 200)
        (bare / "page.md").write_text(PAGE)
        (bare / "home" / "evidence").mkdir(parents=True)
        language_model(bare / "model")
        asked = self.ask(["prompted", *ASKED, "--write", "requests.jsonl"], bare)
        if asked.code:
            raise RuntimeError(asked.err)
        lines = answered(bare / "requests.jsonl", lambda body: completion("0.5"))
        (bare / "answers.jsonl").write_text("\n".join(lines))

    @cached_property
    def stored(self) -> Path:
        """The folder with results: of the commands of ``DONE``, evidence, a site, claims, a run that was begun."""
        place = self.copy(self.bare)
        for words in (*map(FROM_NOTHING.get, DONE), ["evidence", "add", "RUN"], ["site"], ["claims", "--record"]):
            done = self.ask(words or [], place)
            if done.code:
                raise RuntimeError(f"{words}: {done.err}")
        self.ask(UNFINISHED, place, at_write(lambda number: number == 70 and os._exit(0)))
        return Path(shutil.copytree(place, self.root / "stored" / "here"))

    def copy(self, of: Path) -> Path:
        """Return a copy of a folder, always under one path, which some files hold, in the place of the one before.

        Its files are hard links but for those that are written in place.
        """
        place = self.root / "place" / "here"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(of, place, copy_function=_link)
        return place

    def begun(self, name: str) -> Path:
        """Return the folder that a command which writes is typed in."""
        return self.copy(self.stored if name in FROM_STORED else self.bare)

    def ask(self, words: list[str], place: Path, *before: Hook, most: float = 120.0) -> Answer:
        """Types a command in a folder; the names of ``PLACES`` in it are those of the folders that are there."""
        for name in {*PLACES} & {*words}:
            (there,) = place.glob(PLACES[name])
            words = [str(there.relative_to(place)) if word == name else word for word in words]
        return ask(command(words), place, [_quick, *before], most)


def _preload() -> None:
    """Load what commands load, so that processes that are forked need not."""
    for module in pkgutil.walk_packages(icl_lab.__path__, "icl_lab."):
        if not module.name.endswith(("__main__", "ray_engine")):
            importlib.import_module(module.name)


def _link(source: str, target: str) -> None:
    if source.endswith((".jsonl", ".lock")):
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def _quick() -> None:
    """Checkpoints at every turn, so that faults meet them; small pictures; the evidence of the folder."""
    from icl_lab.analyses.boundary import curves
    from icl_lab.runs import environment
    from icl_lab.training import loop

    os.environ["ICL_LAB_EVIDENCE"] = "home/evidence"
    environment.commit = lambda *_: "0123456789ab"  # whoever edits meanwhile changes it
    loop.CHECKPOINT_SECONDS = 0.0
    curves.SIDE = 40
    one_pixel_pictures()


def language_model(folder: Path) -> None:
    """Write a tiny Llama with a tokenizer of bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 288, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads)).save_pretrained(folder)
    write_tokenizer(folder, "Input: 0.12 Output: 0.5\nThe quick brown fox jumps.\n")


def tree(place: Path) -> dict[str, bytes]:
    """Return every file of a folder by its path, and every empty folder, but for locks."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.name.endswith(".lock"):
            found[path.relative_to(place).as_posix()] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[f"{path.relative_to(place).as_posix()}/"] = b""
    return found


def apart(one: dict[str, bytes], other: dict[str, bytes]) -> set[str]:
    """Return the files that one of two folders lacks, or that have other bytes in them, but for what is made anew."""
    both = {name for name in one.keys() & other if one[name] == other[name] or Path(name).name in ANEW}
    return (one.keys() | other) - both
