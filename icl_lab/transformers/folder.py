"""Saved folders that name their normalizer: a config that transformers reads with it or not at all.

A folder names a model type that transformers does not know, and a Python file that reads it. With
``trust_remote_code=True`` that file does (``remote.py``), whoever asks: pipelines, servers, harnesses. Without, it is
refused, and nobody gets softmax.
"""

import json
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

from icl_lab.errors import BadValue
from icl_lab.files import write

KEY = "icl_lab"  # of the config, where what is installed is written
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
CODE = f'''"""Read this folder with its attention normalizers. Run by transformers, given trust_remote_code=True."""

from icl_lab.transformers.remote import AutoConfig, reader

{"".join(f'{head} = reader("{head}")' + chr(10) for head in HEADS)}'''


def mark(folder: Path) -> None:
    """Makes a folder that ``save_pretrained`` has written one that only this package reads.

    One whose model needs remote code of its own stays as it is.
    """
    path = folder / "config.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    if told["model_type"] not in CONFIG_MAPPING:
        return
    told[PLAIN] = {"model_type": told["model_type"], **REFUSAL}
    told[KEY][TYPE_KEY], told["model_type"] = told["model_type"], TYPE
    told["auto_map"] = {name: f"{Path(FILE).stem}.{name}" for name in ("AutoConfig", *HEADS)}
    write(folder / FILE, CODE.encode())
    write(path, (json.dumps(told, indent=2, sort_keys=True) + "\n").encode())


def description(folder: Path) -> dict[str, Any]:
    """Returns the config of a saved folder as the model's own class writes it; raises ``BadValue`` where it is none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadValue(f"{folder} is no folder that a model was saved in: {error}") from None
    told = config.get(KEY)
    if not isinstance(told, dict) or not {"attn", "train_tokens", "layers", "version"} <= set(told):
        raise BadValue(f"{folder} holds no attention normalizer; from_pretrained of transformers reads it.")
    if config.get("model_type") == TYPE:
        config["model_type"] = told.pop(TYPE_KEY, "")
        for name in ("auto_map", PLAIN):
            config.pop(name, None)
    config.pop("attn_implementation", None)
    return dict(config)
