"""The pages as text: fields are written as text, never as markup, and a policy lets no request out."""

from functools import cache
from typing import Any

import jinja2

from icl_lab.claims import card
from icl_lab.extras.site import cards

# `file:` because browsers do not agree on whether 'self' means anything for a page that was opened from disk.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; "
    "base-uri 'none'; form-action 'none'"
)


def render(template: str, path: str, **fields: Any) -> bytes:
    """Return the page at a path of the site, from a file in ``templates``."""
    made = _environment().get_template(template)
    return made.render(policy=POLICY, here=path, root="../" * path.count("/"), **fields).encode(errors="replace")


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("icl_lab.extras.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    made.filters |= {"plain": _plain, "bytes": _bytes, "capitalize_first": lambda text: text[:1].upper() + text[1:]}
    made.filters |= {"tone": cards.tone, "cell": card.cell, "interval": cards.interval}
    return made


def _plain(text: str) -> str:
    """Markdown's marks of code and weight taken off, as they are in cells."""
    return text.replace("`", "").replace("**", "")


def _bytes(size: int) -> str:
    """A size as one says it."""
    return f"{size:,} bytes" if size < 2048 else f"{size / 1024:,.0f} kB" if size < 2**20 else f"{size / 2**20:,.1f} MB"
