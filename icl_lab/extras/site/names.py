"""Paths of pages and files of the site: names that are safe in every file system, in an address and in a script."""

import hashlib
import json
import re
from typing import Any

LONGEST = 80  # characters of what can be read in a name


def address(key: str) -> str:
    """Return the name of the page of ``key``: readable letters, and a hash so that no two are equal.

    >>> address("linear/ssa/lite-0a/seed-0")
    'linear-ssa-lite-0a-seed-0-e8fa39'
    """
    told = re.sub(r"[^A-Za-z0-9._]+", "-", key).strip("-.")[:LONGEST]
    return f"{told}-{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:6]}"


def script(kind: str, name: str, data: str) -> bytes:
    """Return a script that hands ``encoded`` data to the pages that load it: pages opened from disk cannot fetch it.

    Nothing in a text ends the script, begins a tag or a comment: ``<``, ``>`` and ``&`` stand as escapes.
    """
    return f"site.put({encoded(kind)},{encoded(name)},{data});\n".encode()


def encoded(value: Any) -> str:
    """Return a value as JSON in plain ASCII, without ``<``, ``>`` and ``&``. Raises ``ValueError`` on NaN."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
