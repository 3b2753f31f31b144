"""The example site with the stage, which waits for no body as long as a test would."""

from tests.transports.settings import *  # noqa: F403
from tests.transports.settings import MCP_DJANGO as ORDINARY

MCP_DJANGO = {**ORDINARY, "BODY_SECONDS": 2}
