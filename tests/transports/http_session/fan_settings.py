"""Settings of worker processes whose bell is named by the environment.

`MCP_TEST_BELL` is `core` or `pubsub` (a layer of channels_redis, and hardly any polling), `lossy`
(one that loses half of the rings, and polling) or `none`.
"""

import os

from tests.transports.http_session.settings import *  # noqa: F403

BELL = os.environ["MCP_TEST_BELL"]
if BELL == "pubsub":
    CHANNEL_LAYERS["default"]["BACKEND"] = "channels_redis.pubsub.RedisPubSubChannelLayer"  # noqa: F405

# What comes in time with a bell has not been found by looking.
MCP_DJANGO["POLL_SECONDS"] = 0.2 if BELL in ("lossy", "none") else 600  # noqa: F405
