"""How the site is built: Sphinx reads Markdown and notebooks through MyST, and its pages fetch nothing."""

import shutil
from pathlib import Path

project = "icl_lab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]  # the first brings myst_parser
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # their outputs are in them: make notebooks
nb_render_markdown_format = "myst"
myst_enable_extensions: list[str] = []  # no mathematics in pages: what would draw it is fetched
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
exclude_patterns = ["_build", "jupyter_execute"]  # where `make docs` writes
myst_heading_anchors = 3  # so that links to headings work as they do on a code host
highlight_language = "bash"  # of blocks that name none: commands
html_theme = "furo"
html_title = "icl_lab"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_search_summary = False  # excerpts are fetched, which a browser forbids to pages opened from disk


def setup(app):
    """Copy the pictures that HTML of a page names: Sphinx finds those of Markdown alone."""

    def copied(app, error):
        for path in (Path(app.srcdir) / "pictures").glob("causes*"):
            (Path(app.outdir) / "pictures").mkdir(exist_ok=True)
            shutil.copy(path, Path(app.outdir) / "pictures" / path.name)

    app.connect("build-finished", copied)
