"""How the documentation is built: `sphinx-build -W -n docs docs/_build`."""

from __future__ import annotations

import re
import sys
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, get_overloads

import django
from django.conf import settings
from sphinx.util.inspect import stringify_signature

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# The reference is read from the modules, and some of them hold models.
settings.configure(
    SECRET_KEY="only-for-the-documentation",
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "mcp_django",
    ],
)
django.setup()

from mcp_django import __version__  # noqa: E402 - the package is found only now
from mcp_django.conf import DOCUMENTATION  # noqa: E402

project = "mcp_django"
author = "The django-mcp-provider authors"
copyright = f"2026, {author}"  # noqa: A001 - the name that Sphinx reads
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_llms_txt",
]
exclude_patterns = ["_build", "examples"]
needs_sphinx = "8.0"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
# Types of other projects, and our own that are no part of the public surface, are
# named in signatures and have no page to link to.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!mcp_django\.(server|context|test|auth\.permissions)\b).*"),
]

html_theme = "furo"
# The theme's own dark style underlines module names, as if they were links.
pygments_dark_style = "monokai"
html_baseurl = DOCUMENTATION
html_title = f"mcp_django {release}"
# What stands in a box is important, and the theme would print it smaller.
html_theme_options = {
    "light_css_variables": {
        "admonition-font-size": "1rem",
        "admonition-title-font-size": "1rem",
    },
}
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_show_copyright = False
html_show_sphinx = False
html_show_sourcelink = False
# A pasted console session must run: without prompts and without answers.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Read docstrings and overloads the way this package writes them."""
    app.connect("autodoc-process-docstring", _mark_exceptions)
    app.connect("autodoc-process-signature", _show_options)


def _mark_exceptions(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turn what follows `Raises:` into fields.

    The `napoleon` extension does so too, and takes the first colon in the docstring of
    a property for the end of a type.
    """
    if "Raises:" not in lines:
        return
    start = lines.index("Raises:")
    entries = "\n".join(lines[start + 1 :])
    lines[start:] = re.sub(
        r"^ {4}(\w+): ", r":raises \1: ", entries, flags=re.MULTILINE
    ).split("\n")


def _show_options(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, args: str, returns: str
) -> tuple[str, str] | None:
    """Show a method with its options, which are those of a `TypedDict` (PEP 692)."""
    if not isinstance(obj, FunctionType):
        return None
    found = signature((get_overloads(obj) or [obj])[-1])
    parameters = list(found.parameters.values())[1:]
    hint = str(parameters[-1].annotation) if parameters else ""
    declared = re.fullmatch(r"Unpack\[(\w+)\]", hint)
    if declared is None:
        return None
    parameters[-1:] = [
        Parameter(
            option,
            Parameter.KEYWORD_ONLY,
            default=DEFAULT,
            annotation=getattr(hint, "__forward_arg__", hint),
        )
        for option, hint in obj.__globals__[declared[1]].__annotations__.items()
        if option not in found.parameters
    ]
    text = stringify_signature(
        found.replace(parameters=parameters), unqualified_typehints=True
    )
    shown, _, result = text.partition(" -> ")
    return shown, result


class _Default:
    """Stands for a default that is written with the meaning of an option."""

    def __repr__(self) -> str:
        return "..."


DEFAULT = _Default()
