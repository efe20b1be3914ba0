"""Classes through which transformers reads a saved folder with its normalizers, where remote code is trusted."""

from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

from icl_lab.base.errors import BadValue
from icl_lab.transformers.folder import AUTO_MAP, HEADS, model_config
from icl_lab.transformers.saved import load

# Keywords that say where a folder comes from.
HUB = {"cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token", "code_revision"}
HUB |= {"trust_remote_code", "_from_auto", "_commit_hash", "adapter_kwargs", "name_or_path"}


def local(folder: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model: one that is here, or the hub's, fetched."""
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
        """Return the config, of a new class: transformers registers its reader for all of that class."""
        saved = model_config(local(folder, said.get("revision")))
        if saved["model_type"] not in CONFIG_MAPPING:
            raise BadValue(f"{folder}: transformers knows no type of model '{saved['model_type']}'.")
        usual = CONFIG_MAPPING[saved["model_type"]]
        own: type[PreTrainedConfig] = type(usual.__name__, (usual,), {"__module__": __name__})
        said = {name: value for name, value in said.items() if name not in HUB}
        config, unused = own.from_dict(saved, return_unused_kwargs=True, **said)
        config.auto_map = dict(AUTO_MAP)
        # Who makes a model by the name of its class (transformers serve) gets one that asks this file.
        config.architectures = [
            head for head in HEADS if _class_name(head, usual) in (saved.get("architectures") or ())
        ]
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
            place = local(folder, said.get("revision"))
            changed = {} if config is None else _changed(config, place)
            given_on = {name: value for name, value in said.items() if name not in HUB}
            if config is not None:  # which takes it from the keywords
                given_on["attn_implementation"] = config._attn_implementation
            return load(getattr(transformers, head), place, **(changed | given_on))

    return Reader


def _class_name(head: str, config: type[PreTrainedConfig]) -> str | None:
    known = getattr(transformers, head)._model_mapping
    return known[config].__name__ if config in known else None


def _changed(config: PreTrainedConfig, folder: Path) -> dict[str, Any]:
    """Settings of a config that were changed after it was read, as num_labels."""
    usual = AutoConfig.from_pretrained(folder).to_dict()
    return {name: value for name, value in config.to_dict().items() if usual.get(name) != value}
