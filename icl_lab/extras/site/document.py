"""Pages of ``docs/`` as HTML: the Markdown that they use, and no more. Everything else is written as text."""

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

from icl_lab.base import markdown as md

BLOCK = re.compile(r"\n\s*\n")
LIST = re.compile(r"(?m)^(?:[*-]|\d+\.) ")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
PAGES = {"boundary.md": "boundary.html"}  # of docs/ that are pages of the site
SPAN = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)]+)\)")


def title(text: str) -> str:
    """Return the first heading."""
    return text.partition("\n")[0].lstrip("# ").strip()


def pictures(text: str) -> list[str]:
    """Return the addresses of the pictures of a page."""
    return [address for _, address in PICTURE.findall(text)]


def html(text: str) -> Markup:
    """Return a page below its first heading: headings, paragraphs, lists, tables, pictures and blocks of code."""
    _, _, rest = re.sub(r"(?s)\n[ ]*<!--.*?-->", "", text).partition("\n")
    made = []
    # Blocks of code may hold empty lines: they are parted off before paragraphs are.
    for number, part in enumerate(re.split(r"(?ms)^```\w*\n(.*?)^```\n?", rest)):
        if number % 2:
            made.append(Markup('<pre tabindex="0"><code>{}</code></pre>').format(part))
        else:
            made += [_block(block.strip("\n")) for block in BLOCK.split(part) if block.strip()]
    return Markup("\n").join(made)


def _block(text: str) -> Markup:
    lines = text.split("\n")
    if text.startswith("#"):
        level = min(4, len(text) - len(text.lstrip("#")))
        return Markup("<h{0}>{1}</h{0}>").format(level, _words(text.lstrip("# ")))
    if text.startswith("    "):
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format("\n".join(line[4:] for line in lines))
    if found := PICTURE.fullmatch(text):
        return Markup('<figure class="card"><img src="{1}" alt="{0}"><figcaption>{0}</figcaption></figure>').format(
            *found.groups()
        )
    if text.startswith("|") and len(lines) > 1:
        return _table([md.cells(line) for line in lines])
    if LIST.match(text):
        items = [" ".join(item.split()) for item in LIST.split(text) if item.strip()]
        tag = "ol" if text[0].isdigit() else "ul"
        return Markup("<{0}>{1}</{0}>").format(tag, Markup("").join(map(_item, items)))
    return Markup("<p>{}</p>").format(_words(" ".join(lines)))


def _item(text: str) -> Markup:
    return Markup("<li>{}</li>").format(_words(text))


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    head, _, *body = rows
    made = [("th", head), *(("td", row) for row in body)]
    lines = [
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<{0}>{1}</{0}>").format(tag, _words(c)) for c in row))
        for tag, row in made
    ]
    return Markup('<div class="wide" tabindex="0"><table><thead>{}</thead><tbody>{}</tbody></table></div>').format(
        lines[0], Markup("").join(lines[1:])
    )


def _words(text: str) -> Markup:
    """A text with code, weight and emphasis; of a link that leads out of the site its words."""

    def span(found: re.Match[str]) -> str:
        code, strong, weak, link, target = found.groups()
        if target in PAGES:
            return f'<a href="{PAGES[target]}">{_words(link)}</a>'
        tag = "code" if code else "strong" if strong else "em" if weak else "span"
        inner = escape(code) if code else _words(strong or weak or link)
        return f"<{tag}>{inner}</{tag}>"

    parts, last = list[str](), 0
    for found in SPAN.finditer(text):
        parts += [str(escape(text[last : found.start()])), span(found)]
        last = found.end()
    return Markup("".join([*parts, escape(text[last:])]))
