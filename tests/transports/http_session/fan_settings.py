"""Settings of worker processes whose channel layer is named by the environment.

`MCP_TEST_BELL` is `core` or `pubsub` (a layer of channels_redis, and hardly any polling), `lossy`
(a layer that loses half of the messages, and polling) or `none` (polling).
"""

import os

from tests.transports.http_session.settings import *  # noqa: F403

BELL = os.environ["MCP_TEST_BELL"]
if BELL == "pubsub":
    CHANNEL_LAYERS["default"]["BACKEND"] = "channels_redis.pubsub.RedisPubSubChannelLayer"  # noqa: F405

# A change that arrives in time over a reliable layer was not found by polling.
MCP_DJANGO["POLL_SECONDS"] = 0.2 if BELL in ("lossy", "none") else 600  # noqa: F405
