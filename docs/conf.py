"""How the site is built from these pages: Sphinx reads Markdown through MyST. Nothing is fetched, nor asked of a reader."""

project = "icl_lab"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # so that links to headings work as they do on a code host
html_theme = "furo"
html_title = "icl_lab"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
