"""A theme that brings a class of its own for the admin, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.kit.processes import REPOSITORY

PROGRAM = """
import json
from django.conf import settings
from tests import settings as site
names = {name: getattr(site, name) for name in dir(site) if name.isupper()}
# Before the theme, as a package that a site adds on top of its list.
names["INSTALLED_APPS"] = list(dict.fromkeys(["mcp_django", *names["INSTALLED_APPS"]]))
names["MCP_DJANGO"] = {"ADMIN_BASE_CLASS": "tests.admin.theming_class.ThemedAdmin"}
settings.configure(**names)
import django
django.setup()
from django.contrib import admin
found = [
    [model._meta.label, [f"{one.__module__}.{one.__qualname__}" for one in type(registered).mro()]]
    for model, registered in admin.site._registry.items()
    if model._meta.app_label == "mcp_django"
]
print(json.dumps(found))
"""


def unthemed(name: str) -> list[str]:
    """The models of this app whose screens are not of this class, where the setting names it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    screens: list[tuple[str, list[str]]] = json.loads(done.stdout)
    assert screens
    return [model for model, classes in screens if name not in classes]
