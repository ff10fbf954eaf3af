"""Sphinx with MyST. A warning is an error (`make docs`)."""

from importlib.metadata import version as installed

project = "jmsclient"
author = "the jmsclient maintainers"
copyright = "the jmsclient maintainers"  # noqa: A001  Sphinx reads it by this name
release = installed("jmsclient")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jmsclient {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "code"  # docstrings write `names` the way Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": False}
