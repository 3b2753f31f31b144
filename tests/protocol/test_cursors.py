"""Cursors and pages."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.cursors import MAX_CURSOR_LENGTH, Pager, items_after
from mcp_django.protocol.errors import InvalidParams
from tests.spec import spec


class HmacSigner:
    """A signer with a key and nothing else."""

    def __init__(self, key: bytes = b"k") -> None:
        self.key = key

    def sign(self, value: str) -> str:
        return f"{value}:{hmac.new(self.key, value.encode(), hashlib.sha256).hexdigest()}"

    def unsign(self, value: str) -> str:
        text, _, _ = value.rpartition(":")
        if not hmac.compare_digest(self.sign(text).encode(), value.encode("utf-8", "replace")):
            raise ValueError("bad signature")
        return text


SIGNER = HmacSigner()


def pager(scope: str = "tools", *, size: int = 2, signer: Any = SIGNER) -> Pager:
    return Pager(scope, size, signer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children, max_size=3),
    max_leaves=5,
)


@spec("PAG-4")
@given(st.lists(JSON, max_size=4), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_gives_its_key_back(key, scope):
    cursor = pager(scope).next(key)
    assert pager(scope).position(cursor) == key


@spec("PAG-3", "PAG-4")
@given(st.data())
def test_an_altered_cursor_is_refused(data):
    cursor = pager().next(["refund"])
    at = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.characters().filter(lambda c: c != cursor[at]))
    with pytest.raises(InvalidParams):
        pager().position(cursor[:at] + other + cursor[at + 1 :])


@spec("PAG-3", "PAG-4")
@given(st.text(min_size=1))
def test_any_text_is_refused_as_a_cursor(cursor):
    with pytest.raises(InvalidParams) as caught:
        pager().position(cursor)
    assert caught.value.code == -32602
    assert caught.value.message == "The cursor is not valid here; start again without one"


@spec("PAG-4")
def test_an_empty_cursor_is_none():
    assert pager().position("") is None


@spec("PAG-4")
def test_a_cursor_is_good_for_one_list_and_one_key():
    cursor = pager("tools:ann").next(["x"])
    with pytest.raises(InvalidParams):
        pager("tools:bob").position(cursor)
    with pytest.raises(InvalidParams):
        pager("tools:ann", signer=HmacSigner(b"other")).position(cursor)


def test_a_cursor_does_not_show_whose_it_is():
    cursor = pager("tools:ann@shop.example").next(["x"])
    payload, _, _ = cursor.partition(":")
    assert b"ann" not in base64.urlsafe_b64decode(payload)


@pytest.mark.parametrize("payload", ["", "!!", "e30=", "WzEsMl0=", "WyJ4IiwxXQ==", "/w==", "eA"])
def test_a_signed_text_that_is_no_cursor_is_refused(payload):
    with pytest.raises(InvalidParams):
        pager().position(SIGNER.sign(payload))


def test_a_cursor_of_absurd_length_is_refused_unread():
    class Unused:
        sign = unsign = None

    unused: Any = Unused()
    with pytest.raises(InvalidParams):
        pager(signer=unused).position("x" * (MAX_CURSOR_LENGTH + 1))


def page(items: list[str], cursor: str | None = None, size: int = 2) -> tuple[list[str], Any]:
    pages = pager("s", size=size)
    texts, following = pages.page(items_after(items, pages.position(cursor), str), str)
    return [*texts], following


@spec("PAG-1", "PAG-2", "TOOL-3")
def test_pages_follow_each_other_in_the_order_of_the_key():
    first, cursor = page(["d", "b", "a", "c", "e"])
    second, next_cursor = page(["a", "b", "c", "d", "e"], cursor)
    third, end = page(["e", "d", "c", "b", "a"], next_cursor)
    assert (first, second, third, end) == (["a", "b"], ["c", "d"], ["e"], None)


@spec("PAG-2")
@pytest.mark.parametrize("items", [[], ["a"], ["a", "b"]])
def test_the_last_page_has_no_cursor(items):
    assert page(items) == (items, None)


@spec("PAG-3")
def test_items_that_come_and_go_move_no_page():
    _, cursor = page(["b", "d", "f", "h"])
    assert page(["a", "b", "c", "d", "e", "f", "h"], cursor)[0] == ["e", "f"]
    assert page(["f", "h"], cursor)[0] == ["f", "h"]
    assert page(["a"], cursor) == ([], None)


@pytest.mark.parametrize("key", [[], ["a", "b"], [1], [None]])
def test_a_cursor_of_another_kind_of_list_is_refused(key):
    cursor = pager("s").next(key)
    with pytest.raises(InvalidParams):
        page(["a"], cursor)


@spec("PAG-1", "PAG-3")
@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(1, 5))
def test_all_pages_together_are_the_list(items, size):
    texts: list[str] = []
    cursor: str | None = None
    for _ in range(len(items) + 1):
        page_texts, cursor = page([*items], cursor, size)
        texts += page_texts
        if cursor is None:
            break
    assert texts == sorted(items)
