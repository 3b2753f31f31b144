"""`python -m tests.docs.run PAGE`: run the code of a page as the module `shop.mcp` of a site.

Each page has a process of its own, so that it does not see what another one registered.
"""

from __future__ import annotations

import sys
from types import ModuleType

import django
from django.test.utils import setup_databases, setup_test_environment


def main(name: str) -> None:
    """Run one page, and print how many examples it has."""
    django.setup()
    from tests.docs import fences

    setup_test_environment()
    setup_databases(verbosity=0, interactive=False)
    module = ModuleType("shop.mcp")
    module.__package__ = "shop"
    sys.modules["shop.mcp"] = module
    count = fences.evaluate(fences.pages()[name], module.__dict__)
    sys.stdout.write(f"{count} examples\n")


if __name__ == "__main__":
    main(sys.argv[1])
