"""Rate limits of servers and components (quotas).

Every rate of the server and of the component applies. Uses are counted in fixed windows in
Django's default cache; ``auth.limits`` describes the accuracy, and that nothing is limited while
the cache is down. A rejected use is not counted. Only uses by callers who may see the component
and have its scopes are counted, so that a limit does not reveal a hidden component.
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
# Further rounds of an interaction are not counted as new calls, up to this number: a client can
# send the same state again and again.
MAX_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class _Claim:
    """One use to count: its key, and the limit for that key."""

    key: str
    limit: int
    seconds: int
    told: str
    """The rate, for the error message."""


class Tally:
    """Uses that are counted together: either all of them or none."""

    def __init__(self) -> None:
        self._claims: Counter[_Claim] = Counter()

    def add(self, claims: list[_Claim]) -> None:
        """Add uses to those that are counted together."""
        self._claims.update(claims)

    def take(self) -> None:
        """Count the uses.

        Raises:
            TooManyRequests: they exceed a rate; none is counted.
        """
        if self._claims:
            _take(self._claims)


def spend(incoming: Incoming, component: Component, interaction: Interaction | None = None) -> None:
    """Count a use of a component for which the caller is authorized.

    All rounds of one interaction are one use.

    Raises:
        TooManyRequests: a rate is exceeded; names the seconds to wait.
    """
    claims = [*_claims(incoming, component)]
    if not claims or (interaction is not None and _is_round(interaction)):
        return
    tally = incoming.tally
    if tally is None:
        _take(Counter(claims))
    else:
        tally.add(claims)


@async_unsafe("Sessions must be counted in a thread, not on the event loop.")
def spend_session(network: str | None) -> None:
    """Count a session that an anonymous caller opens, by the caller's network.

    ``network`` is ``None`` for an authenticated caller, whose sessions are limited only by their
    number.

    Raises:
        TooManyRequests: ``SESSION_RATE`` is exceeded; names the seconds to wait.
    """
    if network is None:
        return
    for rate in get_settings().session_rate:
        # All unknown networks share one count, so its limit is higher.
        count = rate.count if network else UNKNOWN_FACTOR * rate.count
        wait = limits.take(f"{NAME}-session", network, limit=count, seconds=rate.seconds)
        if wait:
            raise TooManyRequests(
                f"Too many sessions were opened from your address; try again in {wait} seconds.",
                retry_after=wait,
            )


def in_band(request: Request, exc: TooManyRequests) -> dict[str, Any] | None:
    """Return the rejection as a tool result for the model, if ``THROTTLE_AS`` says so."""
    if request.method != "tools/call" or get_settings().throttle_as != "result":
        return None
    return results.tool_error(exc.message)


def _claims(incoming: Incoming, component: Component) -> Iterator[_Claim]:
    server = incoming.server
    # Completions are requested at every keystroke, and must not use up the quota of calls.
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
    """Return the lowest rate for each period, since rates of one period share a count."""
    found: dict[tuple[str, int], Rate] = {}
    for rate in rates:
        known = found.get((rate.of, rate.seconds))
        if known is None or rate.count < known.count:
            found[rate.of, rate.seconds] = rate
    return [*found.values()]


def _key(*parts: object) -> str:
    return "\n".join(map(str, parts))


def _subject(incoming: Incoming, rate: Rate) -> str:
    """Return the part of the key that says which callers share the count."""
    if rate.of == "all":
        return rate.of
    principal = incoming.principal
    # All callers with an unknown address share one count.
    network = network_of(principal, incoming.http_request)
    if network is not None:
        return f"{rate.of} at {network}"
    return f"{rate.of} {principal.user_key if rate.of == 'user' else principal.key}"


# The cache may be a network service, which must not block the event loop.
@async_unsafe("Uses must be counted in a thread, not on the event loop.")
def _take(claims: Counter[_Claim]) -> None:
    waits = {one: _look(one, count) for one, count in claims.items()}
    if any(waits.values()):
        raise _refusal(waits)
    # Other requests count at the same time, so the check above may be out of date.
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


@async_unsafe("Uses must be counted in a thread, not on the event loop.")
def _is_round(interaction: Interaction) -> bool:
    """Return whether a request continues one that was counted."""
    if not interaction.is_continued:
        return False
    seconds = max(1, int(get_settings().question_timeout))
    key = interaction.interaction_id
    return not limits.take(f"{NAME}-round", key, limit=MAX_ROUNDS, seconds=seconds)
