"""Pages of ``docs/`` as HTML, by markdown-it: no HTML of theirs but pictures, and links within the site alone."""

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

PAGES = {
    "boundary.md": "boundary.html",
    "extrapolation.md": "extrapolation.html",
}  # of docs/ that are pages of the site
SOURCES = re.compile(r'\bsrc(?:set)?="([^"]+)"')
DATA = re.compile(r"pictures/[\w-]+\.(?:csv|svg)")  # numbers of a picture: a table, or under the pointer
Env = MutableMapping[str, Any]


class SiteRenderer(RendererHTML):
    """HTML of a page: tables and code scroll by keyboard; a picture alone is a figure and a link to its file."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return Markup('<pre tabindex="0"><code>{}</code></pre>\n').format(tokens[idx].content)

    code_block = fence

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        figure = Markup(
            '<figure class="card"><a href="{0}"><img src="{0}" alt="{1}"></a><figcaption>{1}</figcaption></figure>'
        )
        return figure.format(tokens[idx].attrs["src"], tokens[idx].content)

    def html_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        text = tokens[idx].content
        if text.startswith("<picture>"):
            return f'<figure class="card"><a href="{SOURCES.findall(text)[-1]}">{text.strip()}</a></figure>\n'
        return Markup("<p>{}</p>\n").format(text.strip())

    def html_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return str(escape(tokens[idx].content))

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return '<th scope="col">'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        address = str(tokens[idx].attrs["href"])
        page = address.rpartition("/")[2].partition("#")[0]
        to = PAGES.get(page, address if DATA.fullmatch(address) else "")
        env.setdefault("closing", []).append("a" if to else "span")
        return Markup('<a href="{}">').format(to) if to else "<span>"

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f"</{env['closing'].pop()}>"


MARKDOWN = MarkdownIt("commonmark", renderer_cls=SiteRenderer).enable("table")


def title(text: str) -> str:
    """Return the first heading."""
    return text.partition("\n")[0].lstrip("# ").strip()


def pictures(text: str) -> list[str]:
    """Return the addresses of the pictures of a page, those of their numbers first."""
    return [*DATA.findall(text), *SOURCES.findall(html(text))]


def html(text: str) -> Markup:
    """Return a page below its first heading."""
    tokens = MARKDOWN.parse(re.sub(r"(?s)\n[ ]*<!--.*?-->", "", text).partition("\n")[2])
    for start, inline, end in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if start.type == "paragraph_open" and [part.type for part in inline.children or ()] == ["image"]:
            start.hidden = end.hidden = True  # a figure is no part of a paragraph
    return Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
