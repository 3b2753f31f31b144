"""What the package keeps in the database."""

from __future__ import annotations

from mcp_django.models.calls import Approval, Call
from mcp_django.models.management import (
    Component,
    Exposure,
    ModelExposure,
    PromptText,
    PromptVersion,
    Server,
    ViewExposure,
)
from mcp_django.models.security import AuthEvent, ExternalIdentity
from mcp_django.models.sessions import Inbox, Session, Subscription
from mcp_django.models.skills import Skill, SkillVersion
from mcp_django.models.streams import Event, Stream, Topic, Worker
from mcp_django.models.tasks import Task
from mcp_django.models.tokens import TOKEN_PREFIX, AccessToken, AccessTokenManager, digest
from mcp_django.models.trying import Attachment, Lease

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
    "digest",
]
