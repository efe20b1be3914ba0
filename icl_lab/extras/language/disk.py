"""A language model on disk: paths of its files, its name, and its identity."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MADE_BY = "a folder that save_pretrained has written, or a .gguf file"
END = 2**20  # bytes from the end of a file of weights that tell it from others


@dataclass(frozen=True)
class OnDisk:
    """A folder as ``save_pretrained`` writes it, or one packed file (GGUF)."""

    place: Path

    @property
    def packed(self) -> bool:
        """True if it is one file."""
        return self.place.suffix == ".gguf"

    @property
    def exists(self) -> bool:
        """True if there is such a model; its weights are not read."""
        return self.place.is_file() if self.packed else (self.place / "config.json").is_file()

    @property
    def name(self) -> str:
        """Name of the model: its folder, or its file without the ending."""
        return self.place.resolve().name.removesuffix(".gguf") or "model"

    @property
    def folder(self) -> Path:
        """Path that ``from_pretrained`` reads."""
        return self.place.parent if self.packed else self.place

    @property
    def more(self) -> dict[str, Any]:
        """Arguments of ``from_pretrained`` besides the folder."""
        return {"gguf_file": self.place.name} if self.packed else {}

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of the names, sizes and last bytes of the files of weights."""
        files = [self.place]
        if not self.packed:
            files = sorted(self.place.glob("*.safetensors")) + sorted(self.place.glob("*.bin"))
        digest = hashlib.sha256()
        for path in files:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}".encode())
            with path.open("rb") as file:
                file.seek(max(0, size - END))
                digest.update(file.read())
        return digest.hexdigest()[:12]
