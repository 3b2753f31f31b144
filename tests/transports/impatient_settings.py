"""The example site with the stage, with a short time limit for request bodies."""

from tests.transports.settings import *  # noqa: F403
from tests.transports.settings import MCP_DJANGO as ORDINARY

MCP_DJANGO = {**ORDINARY, "BODY_SECONDS": 2}
