"""`requestState` is text that a client may have changed, copied or stored (MRT-4 to MRT-7)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from django.core import signing
from django.test import override_settings
from hypothesis import assume, given, strategies as st

from mcp_django import Context, MCPServer
from mcp_django.execution import interaction
from mcp_django.test import MCPClient
from tests.components.questions.site import (
    accept,
    asking,
    begun,
    call,
    error_of,
    post,
    result_of,
    retry,
)
from tests.kit.processes import REPOSITORY
from tests.spec import spec

SERVER = asking()
BAD = -32602
# Characters of signatures occur as often as all others together.
ANY_CHARACTER = st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0.:-_=A")
ANY_TEXT = st.text(ANY_CHARACTER)


@spec("MRT-2", "MRT-7")
def test_a_state_carries_the_call_on():
    second = result_of(SERVER, retry(begun(SERVER)))
    assert list(second["inputRequests"]) == ["why"]
    last = retry(second["requestState"], inputResponses={"why": accept("b")})
    assert result_of(SERVER, last)["content"] == [{"type": "text", "text": "1 True b"}]


# What was changed ------------------------------------------------------------------------------


@spec("MRT-4")
@given(st.integers(0, 10_000), ANY_CHARACTER)
def test_one_changed_character_is_noticed_wherever_it_is(place, character):
    state = begun(SERVER)
    position = place % len(state)
    assume(character != state[position])
    changed = state[:position] + character + state[position + 1 :]
    assert error_of(SERVER, retry(changed))["code"] == BAD


@spec("MRT-4")
@given(ANY_TEXT, ANY_TEXT)
def test_text_before_or_behind_is_noticed(before, behind):
    assume(before or behind)
    assert error_of(SERVER, retry(f"{before}{begun(SERVER)}{behind}"))["code"] == BAD


@spec("MRT-4")
@given(ANY_TEXT | st.from_regex(r"\A\.?[\w-]{0,40}:[\w]{0,8}:[\w-]{0,44}\Z"))
def test_no_text_of_a_client_is_a_state(text):
    assert error_of(SERVER, retry(text))["code"] == BAD


@spec("MRT-4")
@pytest.mark.parametrize("state", [0, 1.5, True, [], {}, ["x"]])
def test_a_state_is_text(state):
    assert error_of(SERVER, retry(state))["code"] == BAD


@spec("MRT-4")
def test_half_a_surrogate_pair_is_no_json():
    answer = post(SERVER, retry("\ud800"))
    assert (answer.status, answer.json()["error"]["code"]) == (400, -32700)


@spec("MRT-4")
def test_what_the_site_signed_for_something_else_is_no_state():
    for salt in ("mcp_django.cursor", "django.core.signing"):
        assert error_of(SERVER, retry(signing.dumps({"format": 1}, salt=salt)))["code"] == BAD


@spec("MRT-4")
def test_a_megabyte_is_refused_like_any_other_text():
    error = error_of(SERVER, retry("x" * 1024 * 1024))
    assert error["code"] == BAD
    assert len(error["message"]) < 200


def test_the_refusal_says_what_to_do_and_nothing_of_the_state():
    assert error_of(SERVER, retry("abc:def:ghi")) == {
        "code": BAD,
        "message": "params.requestState is not what this server sent; call again without it.",
    }


@spec("MRT-5")
def test_a_state_of_another_release_is_refused_whatever_it_holds():
    state = begun(SERVER)
    with patch.object(interaction, "FORMAT", 2):
        error = error_of(SERVER, retry(state))
    assert error["code"] == BAD
    assert "from another release" in error["message"]


# What is too old -------------------------------------------------------------------------------


@contextmanager
def later(seconds: float) -> Iterator[None]:
    """Move the clock of signatures forward."""
    with patch.object(signing, "time", SimpleNamespace(time=lambda: time.time() + seconds)):
        yield


@spec("MRT-5")
def test_a_state_is_good_for_ten_minutes():
    state = begun(SERVER)
    with later(590):
        assert result_of(SERVER, retry(state))["resultType"] == "input_required"
    with later(610):
        error = error_of(SERVER, retry(state))
    assert error["code"] == BAD
    assert "older than 600 seconds; call again without it" in error["message"]


@spec("MRT-5")
def test_the_site_says_for_how_long_and_each_round_begins_anew():
    with override_settings(MCP_DJANGO={"CLIENT_REQUEST_TIMEOUT": 20}):
        state = begun(SERVER)
        with later(15):
            second = result_of(SERVER, retry(state))["requestState"]
        with later(25):
            assert error_of(SERVER, retry(state))["code"] == BAD
            body = retry(second, inputResponses={"why": accept("b")})
            assert result_of(SERVER, body)["resultType"] == "complete"


@spec("MRT-5")
def test_a_key_that_was_replaced_is_good_for_as_long_as_it_is_a_fallback():
    state = begun(SERVER)
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["only-for-tests"]):
        assert result_of(SERVER, retry(state))["resultType"] == "input_required"
    with override_settings(SECRET_KEY="new"):
        assert error_of(SERVER, retry(state))["code"] == BAD


# What it holds ---------------------------------------------------------------------------------


def remember(server: MCPServer) -> MCPServer:
    @server.tool(atomic=False)
    def remember(ctx: Context) -> str:
        """Ask again and again."""
        return str(sum(len(ctx.elicit(f"{n}?", str, key=f"q{n}")) for n in range(8)))

    return server


@spec("MRT-7")
def test_answers_are_kept_up_to_a_megabyte_however_well_they_shrink():
    client = MCPClient(server=remember(asking()))
    assert client.call_tool("remember", answers=["x" * 100_000] * 8).text == "800000"
    result = client.call_tool("remember", answers=["x" * 300_000] * 4, check=False)
    assert result.is_error
    assert result.text == "The answers so far are too large to ask anything more; ask for less."


def test_a_state_leaves_room_in_the_body_that_brings_it_back():
    client = MCPClient(server=remember(asking()))
    with override_settings(MCP_DJANGO={"MAX_BODY_BYTES": 20_000}):
        assert client.call_tool("remember", answers=["x" * 4000] * 2).questions
        assert client.call_tool("remember", answers=["x" * 4000] * 3, check=False).is_error


def test_a_state_holds_nothing_of_the_site_or_the_arguments():
    result = result_of(SERVER, call(name="pay", arguments={"note": {"iban": "DE02120300000000"}}))
    plain = signing.loads(
        result["requestState"], salt=interaction.SALT, serializer=interaction._BytesSerializer
    )
    held = json.loads(plain)
    assert b"DE02" not in plain
    assert held.keys() == {
        *("format", "subject", "interaction_id", "answered", "asked"),
        *("progress", "logs", "corrections"),
    }


# Another process -------------------------------------------------------------------------------

ELSEWHERE = """
import json, sys
import django
from django.conf import settings
# There are no tables here to write a log to.
settings.MCP_DJANGO = {"LOG_CALLS": False}
django.setup()
from tests.components.questions.site import asking, post
print(json.dumps(post(asking(), json.load(sys.stdin)).json()))
"""


@spec("MRT-7", "MRT-9")
@pytest.mark.outside
def test_the_retry_may_come_to_another_process():
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps(retry(begun(SERVER))),
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        timeout=240,
    )
    result = json.loads(done.stdout)["result"]
    assert list(result["inputRequests"]) == ["why"]
    body = retry(result["requestState"], inputResponses={"why": accept("b")})
    assert result_of(SERVER, body)["content"][0]["text"] == "1 True b"
