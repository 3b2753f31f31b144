"""`python -m tests.docs.session SETTINGS`: a shell of a Django site that compares its answers.

Reads a session with `>>>` from its input; the exit status is 0 if all answers are as expected.
"""

from __future__ import annotations

import doctest
import os
import sys

import django

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.REPORT_NDIFF


def main() -> int:
    """Run the session, and return how many answers differ."""
    os.environ["DJANGO_SETTINGS_MODULE"] = sys.argv[1]
    django.setup()
    parsed = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "session", None, None)
    return doctest.DocTestRunner(optionflags=FLAGS).run(parsed).failed


if __name__ == "__main__":
    sys.exit(main())
