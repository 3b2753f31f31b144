"""The requirement ledger and the marker that ties a test to it.

`requirements.toml` lists what the protocol requires of a server. A test names what it proves:

    @spec("SES-4", "RSM-8")
    def test_a_dead_session_answers_404(client): ...

`tests/spec/test_ledger.py` fails when a requirement marked as served has no such test, and when a
test names a requirement that is not in the ledger. `python -m tests.spec` prints the counts.
"""

import pytest

spec = pytest.mark.spec

__all__ = ["spec"]
