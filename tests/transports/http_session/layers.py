"""A channel layer that loses messages, for processes that must not depend on them."""

from __future__ import annotations

import os
import random
from typing import Any

from channels_redis.core import RedisChannelLayer

DROP = float(os.environ.get("MCP_TEST_DROP", "0"))


class LossyLayer(RedisChannelLayer):
    """Loses a share of the messages, other ones in each process."""

    async def receive(self, channel: str) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = await super().receive(channel)
            if random.random() >= DROP:
                return message
