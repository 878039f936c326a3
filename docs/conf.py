"""How the documentation becomes a site: `make docs`."""

from collections.abc import Mapping
from importlib.metadata import version as installed
from typing import Any

from potluck.federated import FEDERATED
from potluck.methods import METHODS

project = "Potluck"
author = "the Potluck authors"
copyright = "2026, the Potluck authors"  # noqa: A001
version = release = installed("potluck")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Potluck"
html_static_path = ["_static"]
html_css_files = ["potluck.css"]
html_favicon = "../potluck/watch/page/icon.svg"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0060a0", "color-brand-content": "#0060a0"},
    "dark_css_variables": {"color-brand-primary": "#6cb8f0", "color-brand-content": "#6cb8f0"},
}

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "model_config"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"  # `name` in a docstring is code, as in the Markdown pages
suppress_warnings = ["ref.python"]  # the same name in a package and in its module


def _formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Indented paragraphs of a docstring are formulas or file lists: show them as they are."""
    result: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and result and not result[-1].strip():
            before = next((text for text in reversed(result) if text.strip()), "")
            inside = bool(before) and not before.startswith((":", " ", "..", "-", "*"))
            if inside:
                result += ["::", ""]
        elif line.strip() and not indented:
            inside = False
        result.append(line)
    lines[:] = result


def _named_things(app: Any, docname: str, source: list[str]) -> None:
    """Add a section for each method and each federated optimiser: its module and its options."""
    known: dict[str, Mapping[str, type]] = {"api/methods": METHODS, "api/federated": FEDERATED}
    for name, thing in known.get(docname, {}).items():
        source[0] += f"""
## {name}

```{{eval-rst}}
.. automodule:: {thing.__module__}
   :no-members:

.. autoclass:: {thing.__module__}.{thing.__qualname__}
   :no-members:
```
"""


def setup(app: Any) -> None:
    """Register what this file adds."""
    app.connect("source-read", _named_things)
    app.connect("autodoc-process-docstring", _formulas, priority=900)  # after napoleon
