"""Saved folders that transformers reads with their normalizers where remote code is trusted, and not at all elsewhere.

A folder names a model type that transformers does not know, and a Python file that reads it. With
``trust_remote_code=True`` this package does, whoever asks (pipelines, servers, harnesses); without, it is refused, and
nobody gets softmax.
"""

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

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
# Keywords that say where a folder comes from.
HUB = {"cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token", "code_revision"}
HUB |= {"trust_remote_code", "_from_auto", "_commit_hash", "adapter_kwargs", "name_or_path"}
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


def local(folder: str | Path, revision: str | None = None) -> Path:
    """Returns the folder of a model: one that is here, or the hub's, fetched."""
    if Path(folder).is_dir():
        return Path(folder)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(folder), revision=revision))


class AutoConfig:
    """Reader of the config of such a folder, as transformers' ``AutoConfig`` calls it."""

    @staticmethod
    def register_for_auto_class(auto_class: str = "AutoConfig") -> None:
        """Do nothing: saved again, the folder names this file anyway."""

    @staticmethod
    def from_pretrained(folder: str | Path, *, return_unused_kwargs: bool = False, **said: Any) -> Any:
        """Returns the config, of a class of its own: transformers registers what reads it for all of that class."""
        told = description(local(folder, said.get("revision")))
        usual = CONFIG_MAPPING[told["model_type"]]
        own: type[PreTrainedConfig] = type(usual.__name__, (usual,), {"__module__": __name__})
        said = {name: value for name, value in said.items() if name not in HUB}
        config, unused = own.from_dict(told, return_unused_kwargs=True, **said)
        config.auto_map = {head: f"{Path(FILE).stem}.{head}" for head in HEADS}
        # Who makes a model by the name of its class (transformers serve) gets one that asks this file.
        config.architectures = [head for head in HEADS if _class_name(head, usual) in (told.get("architectures") or ())]
        return (config, unused) if return_unused_kwargs else config


def reader(head: str) -> type:
    """Class whose ``from_pretrained`` reads a folder with its normalizers by this class of transformers."""

    class Reader:
        """Reads a folder; makes no model itself."""

        @staticmethod
        def register_for_auto_class(auto_class: str = head) -> None:
            """Do nothing: saved again, the folder names this file anyway."""

        @classmethod
        def from_pretrained(cls, folder: str | Path, *given: Any, config: Any = None, **said: Any) -> Any:
            """Return the model with its normalizers; ``attn_implementation`` is what ``uninstall`` goes back to."""
            from icl_lab.transformers.saved import load

            changed = {} if config is None else _changed(config, local(folder, said.get("revision")))
            given_on = {name: value for name, value in said.items() if name not in HUB}
            if config is not None:  # which takes it from the keywords
                given_on["attn_implementation"] = config._attn_implementation
            return load(getattr(transformers, head), local(folder, said.get("revision")), **(changed | given_on))

    return Reader


def _class_name(head: str, config: type[PreTrainedConfig]) -> str | None:
    known = getattr(transformers, head)._model_mapping
    return known[config].__name__ if config in known else None


def _changed(config: PreTrainedConfig, folder: Path) -> dict[str, Any]:
    """Settings of a config that were changed after it was read, as num_labels."""
    usual = AutoConfig.from_pretrained(folder).to_dict()
    return {name: value for name, value in config.to_dict().items() if usual.get(name) != value}
