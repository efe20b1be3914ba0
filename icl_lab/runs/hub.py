"""Repositories of the Hugging Face hub: a trained model with its numbers, or the cells of all runs as a data set."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, RunFailed, first_line
from icl_lab.base.files import check_new, replace_folder
from icl_lab.base.version import VERSION
from icl_lab.runs import card, manifest
from icl_lab.runs.manifest import SPEC, WAY_OUT
from icl_lab.runs.run import MEASURED, TRAINED, Run
from icl_lab.runs.store import Store

Kind = Literal["model", "dataset"]
CELLS = "cells.parquet"
COLUMNS = {  # of the table of all cells, besides the axes of the tasks
    "task": "task with its options",
    "attn": "normalizer with its options; `one->other` where another one stood in the model when it was tested, "
    "`reference:NAME` for a predictor that is no model",
    "preset": "size of model, training and test grid",
    "spec": "eight digits of the hash of the whole specification",
    "model_settings": "fields of the model that are not as in the preset, as `--set` takes them; empty where all are",
    "train_settings": "the same of the training",
    "test_settings": "the same of the test",
    "seed": "training seed",
    "metric": "what was measured",
    "value": "mean over prompts",
    "stderr": "standard error of the mean over prompts",
    "count": "number of prompts",
    "evidence": "true for runs of icl_lab's own repository",
    "code": "same, changed: what, or unknown: whether the code that made the run is the one that wrote this table",
}


def of_run(run: Run, name: str = "") -> dict[str, bytes]:
    """Files of a run's repository, which is called ``name``: what its manifest names, and the model card.

    Raises ``RunFailed`` where the run is not finished, its weights are not kept, or a file is damaged.
    """
    if not run.finished:
        raise RunFailed(f"{run.folder} is not finished; the same command goes on with it.")
    text, files = card.text(run), _of_evidence(run) if run.copied else _of_folder(run)
    home = Store(Path("results")).run(run.spec, run.seed).folder
    download = md.code(f"hf download {name or 'OWNER/NAME'} --local-dir {home.as_posix()}")
    how = (
        f"\nThe files are the folder of a run; {download} puts it where the lines above look. "
        "In any other place the folder itself is named: `icl.find(FOLDER)`, or `icl.load(FOLDER)` for the model.\n"
    )
    return {**files, "README.md": (text + how).encode()}


def _of_evidence(run: Run) -> dict[str, bytes]:
    """Files of a run that the evidence holds, with a manifest; it keeps errors of single prompts in some cells only."""
    held = [file for file in (SPEC, *TRAINED, *MEASURED) if file in run.files and file != "errors.safetensors"]
    files = {file: run.read(file) for file in held}
    return {**files, manifest.NAME: manifest.of(files)}


def _of_folder(run: Run) -> dict[str, bytes]:
    """Files that the manifest of a run's folder names, and the manifest.

    Raises ``RunFailed`` where it is missing or names files that no run has. Links are refused: their targets may be
    private.
    """
    named = manifest.read(run.folder)
    if named is None:
        raise RunFailed(f"{run.folder / manifest.NAME} is missing, which names the files to publish; {WAY_OUT}.")
    for file in (manifest.NAME, *named):
        if file not in (manifest.NAME, SPEC, *TRAINED, *MEASURED) or (run.folder / file).is_symlink():
            raise RunFailed(f"{run.folder / file} is not published: it is a link, or no file that a run has.")
    return {**{file: run.read(file) for file in named}, manifest.NAME: (run.folder / manifest.NAME).read_bytes()}


def of_cells(parquet: bytes, columns: Mapping[str, int], rows: int) -> dict[str, bytes]:
    """Files of a data set: the table of all cells, and its card. ``columns``: number of different values of each."""
    axes = [name for name in columns if name not in COLUMNS]
    words = COLUMNS | dict.fromkeys(axes, "axis of the test, empty where the task has none of the name")
    lines = ["---", "license: mit", "tags: [in-context-learning, attention]", "configs:", "- config_name: default"]
    lines += [f"  data_files: {CELLS}", "---", "", "# Errors of small in-context learners under distribution shift", ""]
    lines += [
        f"{rows:,} cells of {columns['spec']:,} specifications: {columns['task']:,} tasks, {columns['attn']:,} "
        "normalizers and references. A row is a cell of a test grid, of one training seed. "
        f"Written by icl_lab {VERSION}.",
        "",
        "A preset has been trained with other settings, too: group by the three columns of settings (or by `spec`) as "
        "well, or filter on those that are empty, so that a mean is one of seeds of one model.",
        "",
        *md.head(["column", "meaning", "values"]),
        *(md.row([md.code(name), words[name], f"{columns[name]:,}"]) for name in columns),
        "",
    ]
    return {CELLS: parquet, "README.md": "\n".join(lines).encode()}


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a repository to a new folder; raises ``BadValue`` where it holds something."""
    check_new(folder)
    replace_folder(folder, files)


def push(files: Mapping[str, bytes], name: str, kind: Kind, private: bool) -> str:
    """Send the files to the repository ``OWNER/NAME`` of the hub, made if it is not there; return its address.

    Raises ``BadValue`` where huggingface_hub is missing, nobody is logged in, or the hub refuses.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
    except ImportError:
        raise BadValue("the hub is reached by huggingface_hub: pip install 'icl_lab[hf]'.") from None
    hub = HfApi()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "repository"
        write(files, folder)
        try:
            hub.whoami()
            hub.create_repo(name, repo_type=kind, private=private, exist_ok=True)
            sent = hub.upload_folder(repo_id=name, folder_path=folder, repo_type=kind, commit_message="icl-lab publish")
        except (HTTPError, ValueError, OSError) as error:  # refused, not logged in, no network
            raise BadValue(f"{name} cannot be sent to the hub: {first_line(error)}") from None
    return str(sent.commit_url)
