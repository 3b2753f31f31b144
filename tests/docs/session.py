"""`python -m tests.docs.session SETTINGS`: a shell of a Django site that compares what it answers.

Reads a conversation with `>>>` from its input; the exit status says whether all was as expected.
"""

from __future__ import annotations

import doctest
import os
import sys

import django

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.REPORT_NDIFF


def main() -> int:
    """Hold the conversation."""
    os.environ["DJANGO_SETTINGS_MODULE"] = sys.argv[1]
    django.setup()
    parsed = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "session", None, None)
    return doctest.DocTestRunner(optionflags=FLAGS).run(parsed).failed


if __name__ == "__main__":
    sys.exit(main())
