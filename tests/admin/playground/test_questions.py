"""What a tool asks becomes a second form, in every revision and over several rounds."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.admin.playground.questions import ClientRequestForm, build_client_requests
from tests.admin.playground.desk import NASTY, visitor
from tests.admin.reading import has_inline_code, text_of

pytestmark = pytest.mark.django_db
REVISIONS = ["2026-07-28", "2025-11-25"]


@pytest.fixture
def client():
    return visitor("try_components")


def answer(kind: str = "accept", **more: str) -> dict[str, str]:
    """What is done with the first question."""
    return {"do": "answer", "question-0-action": kind, **more}


def text(response: Any) -> str:
    [part] = response.context["answer"].parts
    return str(part.text)


@pytest.mark.parametrize("revision", REVISIONS)
def test_questions_are_answered_one_after_the_other(trying, client, revision):
    response = trying.run(client, "asks", revision=revision)
    assert "Which color?" in text_of(response)
    assert not has_inline_code(response)
    response = trying.go_on(client, response, **answer(**{"question-0.value": "=blue"}))
    assert "blue, really?" in text_of(response)
    assert NASTY not in response.content.decode()
    response = trying.go_on(client, response, **answer(**{"question-0.value": "=false"}))
    assert text(response) == "blue False"
    assert len(response.context["raw"]) == (3 if revision == "2026-07-28" else 9)


def test_the_messages_of_every_round_are_shown(trying, client):
    response = trying.run(client, "asks")
    response = trying.go_on(client, response, **answer(**{"question-0.value": "=red"}))
    first, second = response.context["raw"]
    assert "inputResponses" not in first[0]
    assert '"input_required"' in first[1]
    assert '"inputResponses"' in second[0]
    assert '"requestState"' in second[0]


def test_log_messages_before_a_question_are_listed_once(trying, client):
    response = trying.run(client, "asks")
    assert [note.text for note in response.context["notes"]] == ["asking"]
    response = trying.go_on(client, response, **answer(**{"question-0.value": "=red"}))
    assert response.context["notes"] == []


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_may_be_refused_and_its_form_left_empty(trying, client, revision, action):
    response = trying.run(client, "asks", revision=revision)
    response = trying.go_on(client, response, **answer(action))
    assert response.context["answer"].is_error
    assert "The user" in text(response)


def test_an_answer_that_does_not_fit_is_asked_for_again(trying, client):
    response = trying.run(client, "asks")
    again = trying.go_on(client, response, **answer())
    assert again.context["questions"][0].form.errors
    again = trying.go_on(client, again, do="answer")
    assert again.context["questions"][0].action.errors
    last = trying.go_on(client, again, **answer(**{"question-0.value": "=red"}))
    assert "red, really?" in text_of(last)


def test_a_page_is_opened_elsewhere(trying, client):
    response = trying.run(client, "asks_page")
    html = response.content.decode()
    assert (
        '<a href="https://pay.example/form?a=1&amp;b=2" target="_blank" rel="noopener noreferrer">'
        in html
    )
    assert "Done, continue" in html
    assert text(trying.go_on(client, response, **answer())) == "was there"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_person_answers_as_the_model(trying, client, revision):
    response = trying.run(client, "asks_model", revision=revision)
    assert "Say something." in text_of(response)
    assert NASTY not in response.content.decode()
    done = trying.go_on(client, response, **answer(**{"question-0-text": "It said so."}))
    assert text(done) == "It said so."
    refused = trying.go_on(client, response, **answer("decline"))
    assert "refused" in text(refused)


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_person_names_the_folders(trying, client, revision):
    response = trying.run(client, "asks_folders", revision=revision)
    folders = "file:///srv/a\r\n\r\n file:///srv/b"
    done = trying.go_on(client, response, **answer(**{"question-0-text": folders}))
    assert text(done) == "file:///srv/a, file:///srv/b"
    wrong = trying.go_on(client, response, **answer(**{"question-0-text": "/srv/a"}))
    assert "file://" in text_of(wrong)


def test_another_user_cannot_answer(trying, client):
    response = trying.run(client, "asks")
    other = visitor("try_components", name="other")
    taken = trying.go_on(other, response, **answer(**{"question-0.value": "=red"}))
    assert taken.status_code == 400


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//[", "//evil.example", "/\\evil"]
)
def test_an_address_that_is_no_page_is_no_link(url):
    [question] = build_client_requests(
        {"a": {"method": "elicitation/create", "params": {"mode": "url", "url": url}}}
    )
    assert isinstance(question, ClientRequestForm)
    assert (question.url, question.shown_url) == ("", url)
