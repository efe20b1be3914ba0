"""Pages of text: the Markdown that docs/ uses, and everything else as text."""

import re

import pytest

from icl_lab.extras.site import document

TABLE = "<!-- index x -->\n| a | b |\n| --- | --- |\n| 1 | <i> |\n<!-- end -->"
TABLE_HTML = (
    '<div class="wide" tabindex="0"><table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
    "<tbody><tr><td>1</td><td>&lt;i&gt;</td></tr></tbody></table></div>"
)
PICTURES = '<picture>\n<source srcset="b.png">\n<img src="a.png" alt="seen">\n</picture>'
PICTURE_HTML = (
    '<figure class="card"><a href="a.png"><img src="a.png" alt="seen"></a><figcaption>seen</figcaption></figure>'
)


def folded(html):
    """HTML without the white space that shows nowhere: all but that of blocks of code."""
    if "<pre" in html:
        return html.strip().replace("\n</code>", "</code>")
    return " ".join(re.sub(r">\s+<", "><", html).split()).strip()


@pytest.mark.parametrize(
    ("text", "html"),
    [
        (
            "Of `a < b`, **two\nlines**, *weak*.",
            "<p>Of <code>a &lt; b</code>, <strong>two lines</strong>, <em>weak</em>.</p>",
        ),
        ("1 < 2: see [words](other.md).", "<p>1 &lt; 2: see <span>words</span>.</p>"),
        ("See [the bound](docs/boundary.md#c).", '<p>See <a href="boundary.html">the bound</a>.</p>'),
        ("[n](pictures/a.csv)", '<p><a href="pictures/a.csv">n</a></p>'),
        (PICTURES, f'<figure class="card"><a href="a.png">{PICTURES}</a></figure>'),
        ("## Head `x`", "<h2>Head <code>x</code></h2>"),
        ("* one\n  goes on\n* two", "<ul><li>one goes on</li><li>two</li></ul>"),
        ("1. one\n2. two", "<ol><li>one</li><li>two</li></ol>"),
        ("    a  = b\n    c", '<pre tabindex="0"><code>a  = b\nc</code></pre>'),
        ("```\na\n\n# b\n```", '<pre tabindex="0"><code>a\n\n# b\n</code></pre>'),
        ("![seen](a.png)", PICTURE_HTML),
        (TABLE, TABLE_HTML),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
    ],
)
def test_a_block_becomes_html(text, html):
    made = str(document.html(f"# Title\n\n{text}\n"))
    assert folded(made) == folded(html)


def test_title_and_pictures_are_found():
    text = f"# The title\n\n![a](pictures/a.png)\n\n{PICTURES}\n\n[n](pictures/a.svg) and [m](pictures/b.csv)\n"
    found = ["pictures/a.svg", "pictures/b.csv", "pictures/a.png", "b.png", "a.png"]
    assert (document.title(text), document.pictures(text)) == ("The title", found)
