"""How often something may be used: the rates of a server and those of its component.

All of them have to hold, and are counted in fixed windows in Django's default cache;
``auth.limits`` says how exact that is, and that a cache which is down limits nothing. A use that is
refused is not counted. It is a use when the caller may see the component and lacks no scope, so
that nobody finds out by counting what is hidden from him.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.asyncio import async_unsafe

from mcp_django.auth import limits
from mcp_django.auth.limits import UNKNOWN_FACTOR, network_of
from mcp_django.conf import Rate, get_settings
from mcp_django.core.component import Component
from mcp_django.exceptions import TooManyRequests
from mcp_django.execution import results
from mcp_django.execution.call import Incoming
from mcp_django.execution.interaction import Interaction
from mcp_django.protocol.jsonrpc import Request

NAME = "rate"
# A round of questions is no new call, until there are more of them than people answer: the state
# that a client sends back can be sent again and again.
MAX_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class _Claim:
    """One use that is to be counted: for whom, and how many there may be."""

    key: str
    limit: int
    seconds: int
    told: str
    """The rate, for whoever is over it."""


class Tally:
    """The uses that go together: all of them are counted, or none."""

    def __init__(self) -> None:
        self._claims: Counter[_Claim] = Counter()

    def add(self, claims: list[_Claim]) -> None:
        """Count them with the others."""
        self._claims.update(claims)

    def take(self) -> None:
        """Count them.

        Raises:
            TooManyRequests: they are more than may be; none is counted.
        """
        if self._claims:
            _take(self._claims)


def spend(incoming: Incoming, component: Component, interaction: Interaction | None = None) -> None:
    """Count a use of a component, to which the caller was admitted.

    The rounds of one interaction are one use.

    Raises:
        TooManyRequests: a rate is used up; says when to come again.
    """
    claims = [*_claims(incoming, component)]
    if not claims or (interaction is not None and _is_round(interaction)):
        return
    tally = incoming.tally
    if tally is None:
        _take(Counter(claims))
    else:
        tally.add(claims)


@async_unsafe("Sessions are counted in a thread.")
def spend_session(network: str | None) -> None:
    """Count a session that a caller without credentials opens, by the caller's network.

    ``None`` is a known caller, whose sessions are limited by their number alone.

    Raises:
        TooManyRequests: there were as many as ``SESSION_RATE`` allows; says when to come again.
    """
    if network is None:
        return
    for rate in get_settings().session_rate:
        # Many networks share the count of those that are not known.
        count = rate.count if network else UNKNOWN_FACTOR * rate.count
        wait = limits.take(f"{NAME}-session", network, limit=count, seconds=rate.seconds)
        if wait:
            raise TooManyRequests(
                f"Too many sessions were opened from your address; open one in {wait} seconds.",
                retry_after=wait,
            )


def in_band(request: Request, exc: TooManyRequests) -> dict[str, Any] | None:
    """The refusal as the result of a tool, where a model is to read it (``THROTTLE_AS``)."""
    if request.method != "tools/call" or get_settings().throttle_as != "result":
        return None
    return results.tool_error(exc.message)


def _claims(incoming: Incoming, component: Component) -> Iterator[_Claim]:
    server = incoming.server
    # Suggestions are asked for at every key that is typed, and must not use up the calls.
    use = "suggestion" if incoming.request.method == "completion/complete" else "use"
    of_server, of_component = _strictest(server.rates), _strictest(component.rates)
    for rate in of_server:
        key = _key(use, server.name, "", "", rate.seconds, _subject(incoming, rate))
        yield _Claim(key, rate.count, rate.seconds, f"{rate} on the server {server.name!r}")
    for rate in of_component:
        subject = _subject(incoming, rate)
        key = _key(use, server.name, component.kind, component.key, rate.seconds, subject)
        yield _Claim(key, rate.count, rate.seconds, f"{rate} for {component}")


def _strictest(rates: tuple[Rate, ...]) -> list[Rate]:
    """Of several rates over one period the lowest: counted twice, a use would be two."""
    found: dict[tuple[str, int], Rate] = {}
    for rate in rates:
        known = found.get((rate.of, rate.seconds))
        if known is None or rate.count < known.count:
            found[rate.of, rate.seconds] = rate
    return [*found.values()]


def _key(*parts: object) -> str:
    return "\n".join(map(str, parts))


def _subject(incoming: Incoming, rate: Rate) -> str:
    """Who shares the count."""
    if rate.of == "all":
        return rate.of
    principal = incoming.principal
    # All whose address is not known share one count.
    network = network_of(principal, incoming.http_request)
    if network is not None:
        return f"{rate.of} at {network}"
    return f"{rate.of} {principal.user_key if rate.of == 'user' else principal.key}"


# A cache may be a service, which nobody waits for on an event loop.
@async_unsafe("Uses are counted in a thread.")
def _take(claims: Counter[_Claim]) -> None:
    waits = {one: _look(one, count) for one, count in claims.items()}
    if any(waits.values()):
        raise _refusal(waits)
    # Others count at the same time: what was free a moment ago may be taken.
    waits = {one: _count(one, count) for one, count in claims.items()}
    if any(waits.values()):
        for one, count in claims.items():
            limits.give_back(NAME, one.key, seconds=one.seconds, count=count)
        raise _refusal(waits)


def _look(claim: _Claim, count: int) -> int:
    return limits.look(NAME, claim.key, limit=claim.limit, seconds=claim.seconds, count=count)


def _count(claim: _Claim, count: int) -> int:
    return limits.take(NAME, claim.key, limit=claim.limit, seconds=claim.seconds, count=count)


def _refusal(waits: dict[_Claim, int]) -> TooManyRequests:
    claim, wait = max(waits.items(), key=lambda one: one[1])
    return TooManyRequests(
        f"The limit of {claim.told} is reached; call again in {wait} seconds.", retry_after=wait
    )


@async_unsafe("Uses are counted in a thread.")
def _is_round(interaction: Interaction) -> bool:
    """Whether a request goes on with one that was counted."""
    if not interaction.is_continued:
        return False
    seconds = max(1, int(get_settings().question_timeout))
    key = interaction.interaction_id
    return not limits.take(f"{NAME}-round", key, limit=MAX_ROUNDS, seconds=seconds)
