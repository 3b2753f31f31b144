"""The models of the package."""

from __future__ import annotations

from mcp_django.models.calls import Approval, Call
from mcp_django.models.overrides import (
    Component,
    Exposure,
    ModelExposure,
    PromptText,
    PromptVersion,
    Server,
    Skill,
    SkillVersion,
    ViewExposure,
)
from mcp_django.models.sessions import Event, Inbox, Session, Stream, Subscription, Topic, Worker
from mcp_django.models.tasks import Attachment, Lease, Task
from mcp_django.models.tokens import (
    TOKEN_PREFIX,
    AccessToken,
    AccessTokenManager,
    AuthEvent,
    ExternalIdentity,
    token_digest,
)

__all__ = [
    "TOKEN_PREFIX",
    "AccessToken",
    "AccessTokenManager",
    "Approval",
    "Attachment",
    "AuthEvent",
    "Call",
    "Component",
    "Event",
    "Exposure",
    "ExternalIdentity",
    "Inbox",
    "Lease",
    "ModelExposure",
    "PromptText",
    "PromptVersion",
    "Server",
    "Session",
    "Skill",
    "SkillVersion",
    "Stream",
    "Subscription",
    "Task",
    "Topic",
    "ViewExposure",
    "Worker",
    "token_digest",
]
