"""Rate limits of servers and components (quotas).

Every rate of the server and of the component applies. Uses are counted in fixed windows in
Django's default cache; ``auth.limits`` describes the accuracy. While the cache is down, nothing is
limited. A rejected use is not counted. Only uses by callers who may see the component and have its
scopes are counted, so that a limit does not reveal a hidden component.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.utils.asyncio import async_unsafe

from mcp_django.auth import limits
from mcp_django.auth.limits import UNKNOWN_FACTOR
from mcp_django.conf import Rate, get_settings
from mcp_django.exceptions import TooManyRequests
from mcp_django.execution import results
from mcp_django.execution.call import Call, ClientDialogue
from mcp_django.protocol.jsonrpc import Request
from mcp_django.tenants import by_tenant

LIMIT_NAME = "rate"
# Further rounds of an interaction are not counted as new calls, up to this number: a client can
# send the same state again and again.
MAX_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class _Quota:
    """One use to count: its key, and the limit for that key."""

    key: str
    limit: int
    seconds: int
    description: str
    """The rate, for the error message."""


class UsageBatch:
    """Uses that are counted together: either all of them or none."""

    def __init__(self) -> None:
        self._claims: Counter[_Quota] = Counter()

    def add(self, quotas: list[_Quota]) -> None:
        """Add uses to the batch."""
        self._claims.update(quotas)

    def consume(self) -> None:
        """Count the uses.

        Raises:
            TooManyRequests: the uses exceed a rate; none is counted.
        """
        if self._claims:
            _consume_all(self._claims)


def consume(call: Call) -> None:
    """Count a use of the call's component, for which the caller is authorized.

    All rounds of one interaction are one use.

    Raises:
        TooManyRequests: a rate is exceeded; names the seconds to wait.
    """
    server, component, interaction = call.server, call.component, call.interaction
    if not component.rates and not server.rates:
        return
    # Completions are requested at every keystroke, and must not use up the quota of calls.
    use = "suggestion" if call.request.method == "completion/complete" else "use"
    quotas = []
    for rate in _lowest_rates(server.rates):
        subject = _counted_subject(call, rate)
        key = _key(use, server.name, "", "", rate.seconds, subject)
        description = f"{rate} on the server {server.name!r}"
        quotas.append(_Quota(key, rate.count, rate.seconds, description))
    for rate in _lowest_rates(component.rates):
        subject = _counted_subject(call, rate)
        key = _key(use, server.name, component.kind, component.key, rate.seconds, subject)
        quotas.append(_Quota(key, rate.count, rate.seconds, f"{rate} for {component}"))
    if not quotas or (interaction is not None and _is_counted_round(interaction)):
        return
    usage_batch = call.usage_batch
    if usage_batch is None:
        _consume_all(Counter(quotas))
    else:
        usage_batch.add(quotas)


@async_unsafe("Sessions must be counted in a thread, not on the event loop.")
def consume_session(network: str | None) -> None:
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
        wait = limits.count_event(
            f"{LIMIT_NAME}-session", network, limit=count, seconds=rate.seconds
        )
        if wait:
            raise TooManyRequests(
                f"Too many sessions were opened from your address; try again in {wait} seconds.",
                retry_after=wait,
            )


def limited_tool_result(request: Request, exc: TooManyRequests) -> dict[str, Any] | None:
    """Return the rejection as a tool result for the model, if ``THROTTLE_AS`` is ``"result"``."""
    if request.method != "tools/call" or get_settings().throttle_as != "result":
        return None
    return results.tool_error(exc.message)


def _lowest_rates(rates: tuple[Rate, ...]) -> list[Rate]:
    """Return the lowest rate for each period, since rates of one period share a count."""
    rate_by_period: dict[tuple[str, int], Rate] = {}
    for rate in rates:
        lowest = rate_by_period.get((rate.of, rate.seconds))
        if lowest is None or rate.count < lowest.count:
            rate_by_period[rate.of, rate.seconds] = rate
    return [*rate_by_period.values()]


def _key(*parts: object) -> str:
    return by_tenant("\n".join(map(str, parts)))


def _counted_subject(call: Call, rate: Rate) -> str:
    """Return the part of the key that identifies the callers who share the count."""
    if rate.of == "all":
        return rate.of
    principal = call.principal
    # All callers with an unknown address share one count.
    network = call.network
    if network is not None:
        return f"{rate.of} at {network}"
    return f"{rate.of} {principal.user_key if rate.of == 'user' else principal.key}"


# The cache may be a network service, which must not block the event loop.
@async_unsafe("Uses must be counted in a thread, not on the event loop.")
def _consume_all(quotas: Counter[_Quota]) -> None:
    waits = {
        quota: limits.check_limit(
            LIMIT_NAME, quota.key, limit=quota.limit, seconds=quota.seconds, count=count
        )
        for quota, count in quotas.items()
    }
    if any(waits.values()):
        raise _limit_error(waits)
    # Other requests count at the same time, so the check above may be out of date.
    waits = {
        quota: limits.count_event(
            LIMIT_NAME, quota.key, limit=quota.limit, seconds=quota.seconds, count=count
        )
        for quota, count in quotas.items()
    }
    if any(waits.values()):
        for quota, count in quotas.items():
            limits.uncount_event(LIMIT_NAME, quota.key, seconds=quota.seconds, count=count)
        raise _limit_error(waits)


def _limit_error(waits: dict[_Quota, int]) -> TooManyRequests:
    quota, wait = max(waits.items(), key=lambda pair: pair[1])
    return TooManyRequests(
        f"The limit of {quota.description} is reached; call again in {wait} seconds.",
        retry_after=wait,
    )


@async_unsafe("Uses must be counted in a thread, not on the event loop.")
def _is_counted_round(interaction: ClientDialogue) -> bool:
    """Return whether a request continues an interaction that was counted."""
    if not interaction.is_continued:
        return False
    seconds = max(1, int(get_settings().client_request_timeout))
    key = interaction.interaction_id
    return not limits.count_event(f"{LIMIT_NAME}-round", key, limit=MAX_ROUNDS, seconds=seconds)
