"""The id of an interaction: it identifies the user only to this site."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import override_settings
from hypothesis import given, strategies as st

from mcp_django.auth.pages import belongs_to, new_interaction
from mcp_django.auth.principal import anonymous_principal, principal_for
from tests.spec import spec

ADA, BOB = User(pk=1, username="ada"), User(pk=2, username="bob")


def begun(user: Any = ADA) -> str:
    return new_interaction(principal_for(user))


@spec("ASK-17", "ASK-19")
def test_an_interaction_belongs_to_the_user_who_began_it():
    assert belongs_to(begun(), ADA)
    assert not belongs_to(begun(), BOB)
    assert not belongs_to(begun(BOB), ADA)


@spec("ASK-17")
def test_how_the_caller_was_authenticated_makes_no_difference():
    principal = principal_for(ADA, backend="tokens", client_id="x", scopes=frozenset({"read"}))
    assert belongs_to(new_interaction(principal), ADA)


@spec("ASK-17")
def test_what_nobody_began_belongs_to_nobody():
    interaction = new_interaction(anonymous_principal())
    for user in (AnonymousUser(), ADA):
        assert not belongs_to(interaction, user)
    assert not belongs_to(begun(), AnonymousUser())


@spec("ASK-16")
def test_an_id_is_random_short_and_safe_in_an_address():
    ids = {begun() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", page_id) for page_id in ids)
    heads = {page_id.partition(".")[0] for page_id in ids}
    assert len(heads) == 100


@spec("ASK-16")
def test_it_says_nothing_of_its_user():
    user = User(pk=987654321, username="adelaide@example.com", email="adelaide@example.com")
    interaction = begun(user)
    # Long words, because a short one may occur by chance.
    assert not any(word in interaction for word in ("adelaide", "example", "987654321"))


@spec("ASK-17")
@given(st.integers(0, 65), st.characters())
def test_one_changed_character_makes_it_nobodys(position, character):
    interaction = begun()
    changed = interaction[:position] + character + interaction[position + 1 :]
    assert belongs_to(changed, ADA) == (changed == interaction)


@spec("ASK-17")
@pytest.mark.parametrize(
    "text", [None, "", ".", "x", "x.y", "a" * 66, "\ud800.x", "x.\ud800", "x" * 10**6]
)
def test_any_other_text_is_nobodys(text):
    assert not belongs_to(text, ADA)


@spec("ASK-17")
def test_halves_of_two_interactions_make_none():
    (head, _), (_, tail) = (begun().split("."), begun().split("."))
    assert not belongs_to(f"{head}.{tail}", ADA)


def test_a_key_that_was_replaced_is_good_for_as_long_as_it_is_a_fallback():
    interaction = begun()
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["only-for-tests"]):
        assert belongs_to(interaction, ADA)
    with override_settings(SECRET_KEY="new"):
        assert not belongs_to(interaction, ADA)
