"""How the site is built: Sphinx reads Markdown through MyST, and its pages fetch nothing."""

project = "icl_lab"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]  # where `make docs` writes
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
