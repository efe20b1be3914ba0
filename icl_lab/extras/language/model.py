"""A causal language model on disk, with its tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icl_lab.base.errors import BadValue, LabError, first_line
from icl_lab.extras.language.disk import MADE_BY, OnDisk
from icl_lab.normalizers.base import Normalizer


@dataclass(frozen=True)
class LanguageModel:
    """A model of transformers and a tokenizer of the package tokenizers.

    ``attn`` is the normalizer that it was saved with; ``limit`` the most tokens it has places for, None where its
    position code has no end; ``trained`` the tokens of the texts that it was made for.
    """

    name: str
    model: Any
    tokenizer: Any
    attn: str
    trained: int
    limit: int | None

    @property
    def device(self) -> torch.device:
        """Device of its weights."""
        device: torch.device = self.model.device
        return device

    @property
    def words(self) -> int:
        """The tokens that it knows."""
        return int(self.model.get_input_embeddings().num_embeddings)

    @property
    def start(self) -> list[int]:
        """The token that its tokenizer puts before every text; empty where there is none."""
        before: list[int] = self.tokenizer.encode("", add_special_tokens=True).ids
        return before[:1]

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def check_length(self, tokens: int) -> None:
        """Raise ``BadValue`` where ``tokens`` exceeds its context length."""
        if self.limit is not None and tokens > self.limit:
            raise BadValue(f"{self.name} has places for {self.limit:,} tokens, got {tokens:,}.")

    @property
    def rules(self) -> list[Normalizer]:
        """The normalizer of each layer, in the order of the layers."""
        from icl_lab.transformers.attention import rules

        return list(rules(self.model).values())

    @property
    def rule_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of its normalizers, by name; those that layers share once."""
        own = {id(p) for rule in self.rules for p in rule.parameters()}
        return {name: p for name, p in self.model.named_parameters() if id(p) in own}

    @contextmanager
    def ruled(self, attn: str, train_tokens: int) -> Iterator[None]:
        """Put the normalizer into every attention layer within the context.

        The one that the model was saved with is there before and after, with its learned parameters.
        """
        from icl_lab.transformers import folder, placing

        saved = getattr(self.model.config, folder.KEY, None)
        if saved and attn == self.attn:
            yield
            return
        learned = {name: p.detach().clone() for name, p in self.rule_parameters.items()}
        placing.install(self.model, attn, train_tokens=train_tokens)
        try:
            yield
        finally:
            placing.uninstall(self.model)
            if saved:
                placing.place(self.model, saved)
                with torch.no_grad():
                    for name, p in self.rule_parameters.items():
                        p.copy_(learned[name])


def read(place: str, device: torch.device) -> LanguageModel:
    """Read a causal model from disk in single precision; nothing is fetched.

    Raises ``BadValue`` where there is none, it is not a causal model, or weights or the tokenizer are missing.
    """
    disk = OnDisk(Path(place))
    if not disk.exists:
        raise BadValue(f"There is no model '{place}' here; name {MADE_BY}.")
    try:
        import transformers

        from icl_lab.transformers import folder, saved
    except ImportError:
        raise BadValue("language models are read by transformers: pip install 'icl_lab[hf]'.") from None

    config = {} if disk.packed else folder.stored_config(disk.place / "config.json", "a model")
    silence: Any = transformers.utils.logging
    silence.set_verbosity_error()
    silence.disable_progress_bar()
    auto: Any = transformers.AutoModelForCausalLM
    try:
        if config.get(folder.KEY):
            model, missing = saved.load(auto, disk.folder, dtype=torch.float32), []
        else:
            model, found = auto.from_pretrained(
                disk.folder, local_files_only=True, dtype=torch.float32, output_loading_info=True, **disk.more
            )
            missing = sorted(found["missing_keys"])
    except LabError:
        raise
    except Exception as error:  # of a config or weights that are none, transformers raises whatever it meets
        raise BadValue(f"{place} cannot be read as a causal language model: {first_line(error)}") from None
    if missing:
        raise BadValue(
            f"{place} has no weights for {missing[0]} and {len(missing) - 1} more: it would answer by chance."
        )
    trained = getattr(model.config, "max_position_embeddings", None) or 1024
    attn = str(config[folder.KEY]["attn"]) if config.get(folder.KEY) else "softmax"
    return LanguageModel(disk.name, model.to(device).eval(), _tokenizer(disk), attn, int(trained), _limit(model))


def windows_of(tokens: Tensor, start: list[int]) -> Tensor:
    """Windows (b t) with the token that stands before every text, if there is one."""
    if not start:
        return tokens
    return torch.cat((torch.full((len(tokens), 1), start[0], dtype=tokens.dtype), tokens), 1)


def _tokenizer(disk: OnDisk) -> Any:
    from tokenizers import Tokenizer

    folder = disk.folder
    if (folder / "tokenizer.json").is_file() and not disk.packed:
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises Exception itself
            raise BadValue(f"{folder / 'tokenizer.json'} cannot be read: {error}.") from None
    return pretrained_tokenizer(disk).backend_tokenizer


def pretrained_tokenizer(disk: OnDisk) -> Any:
    """Return the tokenizer of a model as transformers has it; ``BadValue`` where there is none that can be read."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from icl_lab.transformers.folder import FILE

    # The config of a model with a normalizer names code that only whoever trusts the folder would run.
    marked = not disk.packed and (disk.folder / FILE).exists()
    auto: Any = PreTrainedTokenizerFast if marked else AutoTokenizer
    try:
        return auto.from_pretrained(disk.folder, local_files_only=True, **disk.more)
    except Exception as error:  # of many kinds, and all mean that there is none
        raise BadValue(f"{disk.folder} has no tokenizer that can be read: {first_line(error)}") from None


def _limit(model: nn.Module) -> int | None:
    """The rows of a table of learned positions; None without one."""
    rows = [
        int(part.num_embeddings)
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding) and ("pos" in name.rpartition(".")[2] or name.endswith("wpe"))
    ]
    return min(rows) if rows else None
