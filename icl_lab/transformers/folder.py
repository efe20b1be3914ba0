"""Saved folders that name their normalizer: a config that transformers reads with it or not at all.

A folder names a model type that transformers does not know, and a Python file that reads it. With
``trust_remote_code=True`` that file does (``remote.py``), whoever asks: pipelines, servers, harnesses. Without, it is
refused, and nobody gets softmax: transformers asks for trust in its own words, and names the folder, whose card
(``card.py``) and file name ``icl_lab.transformers.load``.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from transformers import CONFIG_MAPPING

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue
from icl_lab.base.files import write

KEY = "icl_lab"  # of the config, for the installed normalizers
TYPE = "icl_lab"  # model type of such folders; that of the model is ``TYPE_KEY`` beneath KEY
TYPE_KEY = "model"
ONLY = "icl_lab: this model has an attention normalizer, load it with icl_lab.transformers.load"
# A class of one model (GPT2LMHeadModel) looks for its own config within one of another type: it finds this one, whose
# precision is none that torch has, and fails with these words.
PLAIN = "without_its_normalizer"
REFUSAL = {"dtype": ONLY}
FILE = "modeling_icl_lab.py"
HEADS = (
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForQuestionAnswering",
)
AUTO_MAP = {name: f"{Path(FILE).stem}.{name}" for name in ("AutoConfig", *HEADS)}
CODE = f'''"""Read this folder with its attention normalizers: run by transformers, given trust_remote_code=True.

icl_lab.transformers.load reads it without this file, and without trust.
"""

from icl_lab.transformers.remote import AutoConfig, reader

{"".join(f'{head} = reader("{head}")' + chr(10) for head in HEADS)}'''


class InstalledLayer(Struct, frozen=True):
    """One layer of a saved model: its normalizer, and the heads that it was built for."""

    attn: str
    heads: Annotated[int, Meta(ge=1, le=2**16)]
    head_dim: Annotated[int, Meta(ge=1, le=2**16)]


class Installed(Struct, frozen=True):
    """Description of an installed normalizer, beneath ``KEY``: ``attn`` in some layers, softmax in the others."""

    attn: str
    train_tokens: Annotated[int, Meta(ge=1, le=2**40)]
    layers: Annotated[dict[str, InstalledLayer], Meta(min_length=1, max_length=10_000)]
    version: str
    width: Annotated[int, Meta(ge=0, le=2**24)] = 0  # a folder of an older version has none


def mark(folder: Path) -> None:
    """Make a folder that ``save_pretrained`` has written one that only this package reads.

    One whose model needs other remote code stays as it is.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["model_type"] not in CONFIG_MAPPING:
        return
    config[PLAIN] = {"model_type": config["model_type"], **REFUSAL}
    config[KEY][TYPE_KEY], config["model_type"] = config["model_type"], TYPE
    config["auto_map"] = AUTO_MAP
    write(folder / FILE, CODE.encode())
    write(path, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())


def model_config(folder: Path) -> dict[str, Any]:
    """Return the config of a saved model as its own class writes it; ``BadValue`` where it names no normalizer."""
    without = "holds no attention normalizer; from_pretrained of transformers reads it"
    config = read_config(folder / "config.json", "a model", without)
    if config.get("model_type") == TYPE:
        config["model_type"] = config[KEY].pop(TYPE_KEY, "")
        for name in ("auto_map", PLAIN):
            config.pop(name, None)
    if not isinstance(config.get("model_type"), str):
        raise BadValue(f"{folder / 'config.json'} is damaged or edited: its model_type is no word.")
    config.pop("attn_implementation", None)
    return config


def read_config(path: Path, saved: str, without: str) -> dict[str, Any]:
    """Return the config of the ``saved`` object in a folder, with a normalizer beneath ``KEY``.

    Raises ``BadValue`` where it cannot be read, or names none: the words ``without`` say what the folder is then; and
    where its entry of the normalizer is invalid, or its layers run others than the one that it names.
    """
    config = stored_config(path, saved)
    if not isinstance(config.get(KEY), dict):
        raise BadValue(f"{path.parent} {without}.")
    try:
        told = msgspec.convert(config[KEY], Installed)
    except msgspec.ValidationError as error:
        raise BadValue(f"{path} is damaged or edited: {KEY}: {error}.") from None
    others = {layer.attn for layer in told.layers.values()} - {told.attn}
    if others - {"softmax"} or len(others) == len({layer.attn for layer in told.layers.values()}):
        raise BadValue(
            f"{path} names the normalizer '{told.attn}', and its layers run {', '.join(sorted(others))}: it was edited."
        )
    return config


def stored_config(path: Path, saved: str) -> dict[str, Any]:
    """Return the config of the ``saved`` object in a folder, whatever its content; ``BadValue`` where it is none."""
    try:
        config = json.loads(foreign.shallow(foreign.read(path, foreign.MOST_TEXT)))
        if not isinstance(config, dict):
            raise ValueError(f"{path.name} holds {type(config).__name__}, no object of JSON")
    except (OSError, ValueError) as error:
        raise BadValue(f"{path.parent} is no folder that {saved} was saved in: {error}") from None
    return config
