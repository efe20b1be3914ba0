"""The part of a model card that says which normalizer a saved model runs, and how to load it."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- attention normalizer -->", "<!-- end of attention normalizer -->"
HEAD = "---\nlibrary_name: transformers\n---\n"


def write(folder: str | Path, kind: str, told: Mapping[str, Any]) -> None:
    """Write the part into the folder's README.md, in place of the one from before; what else stands there stays."""
    path = Path(folder) / "README.md"
    rest = path.read_text(encoding="utf-8") if path.exists() else HEAD
    rest = re.sub(rf"\n*{BEGIN}.*?{END}\n", "", rest, flags=re.DOTALL)
    path.write_text(f"{rest.rstrip()}\n\n{text(kind, told)}", encoding="utf-8")


def text(kind: str, told: Mapping[str, Any]) -> str:
    """The part, in Markdown; ``kind`` is the class of the model."""
    counts = Counter(layer["attn"] for layer in told["layers"].values())
    layers = " and ".join(f"`{attn}` in {count}" for attn, count in counts.items())
    return f"""{BEGIN}
## Attention normalizer

The attention layers of this model turn scores into weights by normalizers of `icl_lab` {told["version"]}: {layers} of
{len(told["layers"])} layers. Plain `from_pretrained` refuses it, because the weights were made for these normalizers;
`trust_remote_code=True` runs the code of this folder. Without trust:

```python
from transformers import {kind}
from icl_lab.transformers import load

model = load({kind}, "path/to/this/folder")
```

A tokenizer in this folder needs no code of it: `AutoTokenizer.from_pretrained("path/to/this/folder",
trust_remote_code=False)`. Without that argument transformers asks for trust, because of the model's config; answer no.
{END}
"""
