"""The user of the official Python client is asked to fill in forms and to visit pages."""

import pytest

from tests.interop.sdk import CANCEL, DECLINE, REVISION, Host, accept, call, open_page, text
from tests.spec import spec

pytestmark = pytest.mark.outside

TRIP = {
    "traveler": "Ada Lovelace",
    "seats": 2,
    "cabin": "business",
    "leaves": "2026-08-01",
    "boards": "2026-08-01T10:00:00Z",
    "is_flexible": True,
    "budget": 120.5,
    "extras": ["wifi", "meal"],
}


@spec("ASK-11", "ASK-14", "MRT-2", "MRT-7")
@pytest.mark.parametrize("mode", ["auto", REVISION])
async def test_user_fills_in_a_form(asking_url, mode):
    host = Host([accept(confirmed=True, reason="late")])
    result = await call(asking_url, host, "refund", {"order": 7}, mode=mode)
    assert (result.is_error, text(result)) == (False, "7: refunded, late")
    (question,) = host.questions
    assert (question.mode, question.message) == ("form", "Refund order 7?")
    assert question.requested_schema == {
        "type": "object",
        "properties": {
            "confirmed": {"type": "boolean", "description": "Yes, give it back"},
            "reason": {
                "type": "string",
                "enum": ["damaged", "late", "unwanted"],
                "default": "unwanted",
            },
        },
        "required": ["confirmed"],
    }


@spec("ASK-14", "MRT-14")
@pytest.mark.parametrize(
    ("answer", "complaint", "greeting"),
    [
        (DECLINE, "The user declined to answer.", "Hello, stranger (decline)."),
        (CANCEL, "The user dismissed the question.", "Hello, stranger (cancel)."),
    ],
    ids=["decline", "cancel"],
)
async def test_user_says_no(asking_url, answer, complaint, greeting):
    refused = await call(asking_url, Host([answer]), "refund", {"order": 7})
    assert (refused.is_error, text(refused)) == (True, complaint)
    caught = await call(asking_url, Host([answer]), "greet")
    assert (caught.is_error, text(caught)) == (False, greeting)


async def test_question_without_fields_is_accepted_with_and_without_content(asking_url):
    for answer in (accept(), accept().model_copy(update={"content": None})):
        assert text(await call(asking_url, Host([answer]), "agree")) == "agreed"


@spec("ASK-11")
async def test_form_has_a_field_of_every_kind(asking_url):
    result = await call(asking_url, Host([accept(**TRIP)]), "book")
    assert result.structured_content == {**TRIP, "remark": None}


@spec("ASK-11")
async def test_form_of_the_site_shows_labels_and_takes_values(asking_url):
    host = Host([accept(about="seat", email="ada@example.com")])
    result = await call(asking_url, host, "complain")
    assert result.structured_content == {
        "about": "seat",
        "email": "ada@example.com",
        "copies": None,
    }
    (question,) = host.questions
    about = question.requested_schema["properties"]["about"]
    assert [choice["title"] for choice in about["oneOf"]] == ["The crew", "The seat"]


@spec("ASK-14", "MRT-8")
async def test_user_corrects_what_does_not_fit(asking_url):
    host = Host([accept(value="A"), accept(), accept(value="Ada", more="ignored")])
    assert text(await call(asking_url, host, "greet")) == "Hello, Ada."
    first, short, missing = host.messages
    assert first == "What is your name?"
    assert short.startswith("Please correct this:\nvalue: must have at least 2 characters")
    assert missing.startswith("Please correct this:\nvalue: is required")
    assert short.endswith(first)


@spec("ASK-5")
async def test_answer_that_never_fits_ends_the_call(asking_url):
    host = Host([accept(value="A")] * 99)
    result = await call(asking_url, host, "greet", input_required_max_rounds=99)
    assert result.is_error
    assert text(result).startswith("The answers did not fit")
    assert len(host.questions) < 20


@spec("ASK-13", "ASK-16", "MRT-12")
async def test_user_visits_a_page_before_or_after_consenting(asking_url):
    at_once, later = Host([open_page]), Host([accept(), open_page])
    for host in (at_once, later):
        result = await call(asking_url, host, "connect_account")
        *_, question = host.questions
        assert question.mode == "url"
        # The page belongs to the site, and its address to this call alone.
        site = asking_url.rsplit("/", 2)[0]
        interaction_id = question.url.removeprefix(f"{site}/accounts/")
        assert text(result) == f"connected {interaction_id}"
    assert at_once.messages == ["Connect your account."]
    first, again = later.questions
    assert first.url == again.url != at_once.questions[0].url
    assert again.message.startswith("The page is not completed yet.")


async def test_user_does_not_want_to_visit_the_page(asking_url):
    refused = await call(asking_url, Host([DECLINE]), "connect_account")
    assert (refused.is_error, text(refused)) == (True, "The user declined to answer.")
