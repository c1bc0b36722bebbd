"""Sphinx settings."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
project = "coterie"
copyright = "the coterie contributors"
release = version = installed("coterie")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "coterie_docs", "mathtext"]
html_math_renderer = "mathtext"
highlight_language = "none"  # what names no language is no program
napoleon_use_ivar = True
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build", "gallery"]
html_static_path = ["_static"]
html_css_files = ["coterie.css"]
html_theme = "furo"
html_title = "coterie"
