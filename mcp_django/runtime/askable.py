"""What the client of one request can be asked, and in which words."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_django.core.component import Component
from mcp_django.core.questions import Question
from mcp_django.exceptions import ElicitationUnavailable, MissingCapability
from mcp_django.protocol.errors import declares, requirement
from mcp_django.protocol.shapes import unsayable
from mcp_django.runtime.incoming import Incoming

# What stands in the way of a client that declares everything, at revisions with sessions.
NO_STREAM = (
    "questions to it need a stream: it has to accept text/event-stream, and the site to run under "
    "ASGI."
)


class Askable:
    """A client as the questions of one call see it."""

    def __init__(self, incoming: Incoming, component: Component) -> None:
        self._incoming = incoming
        self._component = component

    @property
    def has_channel(self) -> bool:
        """Whether a question can reach the client before its answer does, or as its answer."""
        return self._incoming.revision.stateless or self._incoming.can_ask

    def supports(self, name: str) -> bool:
        """Whether the client declared that it can be asked for this, and there is a way to."""
        incoming = self._incoming
        if not (self.has_channel or self._is_told_by_error(name)):
            return False
        return incoming.revision.asks(name) and declares(
            incoming.envelope.client_capabilities, name
        )

    def _is_told_by_error(self, name: str) -> bool:
        """Whether the client learns of it from an error, and calls again afterwards (ASK-18)."""
        return name == "elicitation.url" and self._incoming.revision.elicitation_ids

    def require(self, names: Sequence[str]) -> None:
        """Refuse to go on without what the client has to declare.

        Raises:
            MissingCapability: naming everything that it did not declare (MRT-3).
        """
        missing = [name for name in names if not self.supports(name)]
        if not missing:
            return
        is_form = any(name.startswith("elicitation") for name in missing)
        kind = ElicitationUnavailable if is_form else MissingCapability
        declared, asks = self._incoming.envelope.client_capabilities, self._incoming.revision.asks
        is_able = all(asks(name) and declares(declared, name) for name in missing)
        raise kind(
            f"{self._component} needs a client that declares {' and '.join(sorted({*missing}))}."
            + (f" This one does; {NO_STREAM}" if is_able and not self.has_channel else ""),
            data={"requiredCapabilities": requirement(missing)},
        )

    def check_words(self, questions: Sequence[Question]) -> None:
        """Refuse what the revision of the request cannot say.

        Raises:
            MissingCapability: naming it.
        """
        revision = self._incoming.revision
        for one in questions:
            lacking = unsayable(one.method, one.to_params(), revision)
            if lacking is not None:
                is_form = one.needs.startswith("elicitation")
                kind = ElicitationUnavailable if is_form else MissingCapability
                raise kind(
                    f"{self._component} asks with {lacking}; {revision.version} has nothing alike.",
                    data={"requiredCapabilities": requirement([one.needs])},
                )
