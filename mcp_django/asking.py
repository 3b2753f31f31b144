"""The questions of a running call: ``ctx.elicit`` and its like.

Each is answered by replay. A question without an answer ends the run of the function with
``InputRequired``; the runtime gets the answer and runs the function again, from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async

from mcp_django.conf import get_settings
from mcp_django.exceptions import ElicitationUnavailable
from mcp_django.protocol.capabilities import check_askable, requirement
from mcp_django.questions import Elicit, ElicitURL, ListRoots, Question, Root, Sample

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.questions.sample import Said, SampledMessage


class Asker(Protocol):
    """Whom the running call may ask."""

    @property
    def interaction_id(self) -> str:
        """The same in every round."""

    def supports(self, name: str) -> bool:
        """Whether the client declared it."""

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """The answers, or ``InputRequired``."""


class Nobody:
    """Nobody can be asked: outside of a call, or in one whose answer cannot be a question."""

    interaction_id = ""

    def supports(self, name: str) -> bool:
        """Whether the client declared it: there is none."""
        return False

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """Refuse.

        Raises:
            ElicitationUnavailable: always.
        """
        raise ElicitationUnavailable(
            "Nobody can be asked here: only a tool, a resource that is read and a prompt may ask.",
            data={"requiredCapabilities": requirement(one.needs for one in questions)},
        )


class Asking:
    """What a ``Context`` can ask; every method has an ``a`` twin for async code."""

    _asker: Asker

    @property
    def request(self) -> HttpRequest | None:
        """The HTTP request that carries the call, ``None`` where there is none."""
        return None

    @property
    def interaction_id(self) -> str:
        """The same in every round of this interaction, and of no other.

        What must happen once is stored under it: a retry then finds that it happened (MRT-6).
        ``mcp_django.auth.interactions.belongs_to`` tells whose it is.
        """
        return self._asker.interaction_id

    def supports(self, name: str) -> bool:
        """Whether the client can be asked: ``elicitation``, ``elicitation.url``, ``sampling``,
        ``sampling.tools`` or ``roots``.

        Raises:
            ValueError: there is no such thing to ask for.
        """
        check_askable(name)
        return self._asker.supports(name)

    def ask(self, *questions: Question) -> tuple[Any, ...]:
        """The answers to several questions, asked in one round.

        A question without an answer ends this run of the function; it runs again from its
        beginning once the answer is there. So: read before the question, write after it.

        Raises:
            ElicitationDeclined: the user does not want to answer one of them.
            MissingCapability: the client did not declare what they need.
        """
        return self._asker.ask(questions)

    async def aask(self, *questions: Question) -> tuple[Any, ...]:
        """``ask`` for async code."""
        if any(one.uses_database for one in questions):
            return await sync_to_async(self._asker.ask)(questions)
        return self._asker.ask(questions)

    def elicit(self, message: str, schema: Any = None, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and get it filled in.

        ``schema`` is a dataclass, ``TypedDict`` or pydantic model of flat fields, a Django form, a
        single type such as ``bool`` or ``Literal["a", "b"]``, a schema written by hand, or
        nothing for a question that is just accepted. What does not fit is asked again.

        Raises:
            ElicitationDeclined: the user said no; uncaught it ends the call with that sentence.
            ElicitationUnavailable: the client has no forms.
        """
        return self.ask(Elicit(message, schema, key=key))[0]

    async def aelicit(self, message: str, schema: Any = None, *, key: str | None = None) -> Any:
        """``elicit`` for async code."""
        return (await self.aask(Elicit(message, schema, key=key)))[0]

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        """Send the user to a page, for secrets, payments and sign-in elsewhere.

        ``url`` is absolute or a path of this site. Returns once the user agreed to go there and
        ``done()`` is true; where it is true at once, nobody is asked. A client of 2025-11-25 that
        cannot be asked gets an error with the address, and calls again: then ``done`` has to look
        for the user, since ``interaction_id`` is another one in each call. The page has to check
        that its visitor is the caller: ``interaction_id`` in the URL and
        ``mcp_django.auth.interactions.belongs_to`` do that.

        Raises:
            ElicitationDeclined: the user said no.
            ElicitationUnavailable: the client opens no pages.
            ValueError: users are not sent to such an address.
        """
        self.ask(ElicitURL(message, self._absolute(url), done=done, key=key))

    async def aelicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        """``elicit_url`` for async code; ``done`` is a sync function all the same."""
        await self.aask(ElicitURL(message, self._absolute(url), done=done, key=key))

    def _absolute(self, url: str) -> str:
        url = str(url)  # it may be a lazy one
        if not url.startswith("/") or url.startswith("//"):
            return url
        if base := get_settings().base_url:
            return base.rstrip("/") + url
        return self.request.build_absolute_uri(url) if self.request else url

    def sample(self, messages: Said | Sequence[Said], **options: Any) -> SampledMessage:
        """Ask the client's language model; ``options`` are those of ``Sample``.

        Raises:
            MissingCapability: the client lends no model, or none that uses tools.
        """
        answer: SampledMessage = self.ask(Sample(messages, **options))[0]
        return answer

    async def asample(self, messages: Said | Sequence[Said], **options: Any) -> SampledMessage:
        """``sample`` for async code."""
        answer: SampledMessage = (await self.aask(Sample(messages, **options)))[0]
        return answer

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the folders that the user works in.

        Raises:
            MissingCapability: the client has none.
        """
        roots: list[Root] = self.ask(ListRoots(key=key))[0]
        return roots

    async def alist_roots(self, *, key: str | None = None) -> list[Root]:
        """``list_roots`` for async code."""
        roots: list[Root] = (await self.aask(ListRoots(key=key)))[0]
        return roots
