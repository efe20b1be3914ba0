"""Benchmarks of lm-evaluation-harness (lm_eval) on language models, with normalizers in their attention."""

import hashlib
import io
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import torch

from icl_lab import normalizers
from icl_lab.errors import BadValue, RunFailed, first_line
from icl_lab.files import made, write
from icl_lab.language.disk import MADE_BY, OnDisk
from icl_lab.language.model import LanguageModel, pretrained_tokenizer, read
from icl_lab.progress import Tick, silent

SEED = 1234  # of lm_eval, for the examples before an item
KEPT = "benchmarks"  # folder of the results in which finished benchmarks are kept


class Score(msgspec.Struct, frozen=True):
    """One metric of a benchmark; ``each`` is that of every item where the metric is their mean, else empty."""

    metric: str
    value: float
    stderr: float
    count: int
    each: list[float]


class Scores(msgspec.Struct, frozen=True):
    """Scores of a model on a benchmark, asked with ``shots`` examples before each item."""

    task: str
    shots: int
    scores: list[Score]


@dataclass(frozen=True)
class BenchmarkQuestion:
    """Question to language models: folders, normalizers (none: those that they were saved with), names of benchmarks.

    ``shots`` and ``length`` (most tokens of an item) are the harness' own where they are None and 0; ``near`` is the
    length that normalizers take for that of training; ``include`` a folder with benchmarks as YAML files.
    """

    models: tuple[str, ...]
    attns: tuple[str, ...]
    tasks: tuple[str, ...]
    shots: int | None = None
    limit: int = 0
    length: int = 0
    near: int = 0
    include: str = ""

    @property
    def disks(self) -> list[OnDisk]:
        """Paths of the models; raises ``BadValue`` where one is not there."""
        disks = [OnDisk(Path(model)) for model in self.models]
        for disk in disks:
            if not disk.there:
                raise BadValue(f"There is no model '{disk.place}' here; name {MADE_BY}.")
        return disks

    def options(self) -> dict[str, Any]:
        """Options of the study as they are recorded; the weights by their hashes."""
        return {**asdict(self), "weights": [disk.fingerprint for disk in self.disks]}


@dataclass(frozen=True)
class Evaluated:
    """Scores of one model with one normalizer."""

    model: str
    fingerprint: str
    attn: str
    scores: Scores


def measure(
    question: BenchmarkQuestion, folder: Path, device: torch.device, batch: int = 8, tick: Tick = silent
) -> list[Evaluated]:
    """Ask every model, with every normalizer, every benchmark; what is finished is kept in ``folder`` and read again.

    Raises ``BadValue`` where lm_eval, a model, a normalizer or the data of a benchmark is missing, before anything is
    computed.
    """
    disks = question.disks
    attns = tuple(dict.fromkeys(normalizers.canonical(attn) for attn in question.attns))
    manager = _manager(question)
    models = [read(model, device) for model in question.models]
    pairs = [(i, attn) for i, model in enumerate(models) for attn in attns or (model.attn,)]
    for i, attn in pairs:  # one that does not fit a model is told before anything is computed
        with models[i].ruled(attn, question.near or models[i].trained):
            pass
    made(folder)
    benchmarks = _digests(question, manager)
    found, total = list[Evaluated](), len(pairs) * len(benchmarks)
    for i, attn in pairs:
        model, disk = models[i], disks[i]
        fingerprint, near = disk.fingerprint, question.near or model.trained
        with model.ruled(attn, near):
            for name, digest in benchmarks.items():
                tick("benchmarks", len(found), total, f"{name}, {disk.name}, {attn}")
                asked = (fingerprint, attn, near, question.length, question.shots, question.limit, digest)
                path = folder / f"{hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}.json"
                scores = _kept(path)
                if scores is None:
                    scores = _scores(question, _asked(question, model, disk, batch), manager.load([name]), name)
                    write(path, msgspec.json.encode(scores))
                found.append(Evaluated(disk.name, fingerprint, attn, scores))
    tick("benchmarks", total, total, "")
    return found


def _kept(path: Path) -> Scores | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Scores)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFailed(f"{path} is damaged ({error}); delete it, and its benchmark is done again.") from None


def _harness() -> Any:
    """The package lm_eval, which logs a page for each benchmark unless it is told not to."""
    try:
        import lm_eval.tasks
    except ImportError:
        raise BadValue("benchmarks are those of lm_eval: pip install 'icl_lab[eval]'.") from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return lm_eval


def _without_bars() -> AbstractContextManager[object]:
    """Without what lm_eval and datasets draw on standard error, where that is a log."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def _manager(question: BenchmarkQuestion) -> Any:
    """Index of all benchmarks; raises ``BadValue`` where it lacks one that is asked for."""
    manager = _harness().tasks.TaskManager(include_path=question.include or None)
    version, known = _harness().__version__, manager.all_tasks
    for name in question.tasks:
        if name not in known:
            near = get_close_matches(name, known, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise BadValue(f"lm_eval {version} has no benchmark '{name}'.{meant} `lm_eval ls tasks` lists them.")
    return manager


def _digests(question: BenchmarkQuestion, manager: Any) -> dict[str, str]:
    """Names of the benchmarks, those of a group one by one, and a digest of what each asks: settings and items."""
    version = _harness().__version__
    found = dict[str, str]()
    for name in question.tasks:
        try:
            with _without_bars():
                loaded = manager.load([name])["tasks"]
            asked = {each: [version, task.dump_config(), list(task.eval_docs)] for each, task in loaded.items()}
        except Exception as error:  # of many kinds: no network, no such data set, a file that is none
            raise BadValue(f"the benchmark {name} cannot be read: {first_line(error)}") from None
        # Functions of a benchmark are part of lm_eval's version; their addresses would differ from run to run.
        dumped = {each: json.dumps(of, default=lambda value: type(value).__name__) for each, of in asked.items()}
        found |= {each: hashlib.sha256(text.encode()).hexdigest() for each, text in dumped.items()}
    return found


def _asked(question: BenchmarkQuestion, model: LanguageModel, disk: OnDisk, batch: int) -> Any:
    """The model as the harness asks it."""
    from lm_eval.models.huggingface import HFLM

    reads, longest = pretrained_tokenizer(disk), question.length or None
    return HFLM(model.model, tokenizer=reads, backend="causal", batch_size=batch, max_length=longest)


def _scores(question: BenchmarkQuestion, asked: Any, loaded: Any, task: str) -> Scores:
    """Scores on one benchmark, ``loaded`` afresh: the harness keeps the answers of the model before in it."""
    for each in loaded["tasks"].values():  # as simple_evaluate does, which collects a page about the machine as well
        fixed = each.get_config("num_fewshot")
        each.set_config("num_fewshot", fixed or 0 if question.shots is None or fixed == 0 else question.shots)
        each.set_fewshot_seed(SEED)
    with _without_bars():
        results = _harness().evaluate(asked, loaded, limit=question.limit or None)
    values, items = results["results"][task], results["samples"][task]
    scores = []
    for key, value in values.items():
        metric, comma, filter_name = key.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        each = [item.get(metric) for item in items if item["filter"] == filter_name]
        stderr = values.get(f"{metric}_stderr,{filter_name}")
        named = metric if filter_name == "none" else f"{metric} ({filter_name})"
        error = float(stderr) if isinstance(stderr, int | float) else float("nan")
        scores.append(Score(named, float(value), error, len(each), _shares(each, float(value))))
    return Scores(task, int(results["n-shot"][task]), scores)


def _shares(each: Sequence[Any], value: float) -> list[float]:
    """Numbers of the items where their mean is the value: not so of perplexities and F1."""
    if not all(isinstance(one, int | float) for one in each) or abs(sum(each) / len(each) - value) > 1e-9:
        return []
    return [float(one) for one in each]
