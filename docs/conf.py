"""Sphinx settings."""

from importlib.metadata import version as installed

project = "coterie"
copyright = "the coterie contributors"
release = version = installed("coterie")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_use_ivar = True
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "coterie"
nitpicky = False
