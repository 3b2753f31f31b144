"""What the tests of screens share."""

import pytest


@pytest.fixture(autouse=True)
def _few_servers(few_servers):
    """Screens that look at all servers cost the same whatever other tests have made."""
    from mcp_django import server as module
    from tests.admin.shelf import shelf
    from tests.execution.approval_site import gated

    module._servers.update({shelf, gated})
