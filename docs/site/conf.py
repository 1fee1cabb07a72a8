"""How Sphinx makes the site of what build.py has collected."""
project = "libcoll"
author = copyright = "the libcoll authors"  # pylint: disable=redefined-builtin
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "libcoll"
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 4  # pages refer to sections by their headings
suppress_warnings = ["misc.highlighting_failure"]  # C with "..." for what is left out
