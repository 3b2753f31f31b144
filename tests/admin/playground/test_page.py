"""Choosing, filling in, and what an answer looks like."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mcp_django.models import Attachment
from tests.admin.playground.desk import root, visitor
from tests.admin.reading import has_inline_code, text_of
from tests.sites.example.mcp import PIXEL

pytestmark = pytest.mark.django_db


def staff() -> Any:
    return visitor("try_components")


def attachments(response: Any) -> list[str]:
    return re.findall(r'"([^"]*/attachment/[^"]*)"', response.content.decode())


def test_what_the_user_may_see_is_listed_by_kind(trying):
    page = text_of(trying.get(staff()))
    for shown in ("echo", "add_group", "desk://about", "desk://groups/{name}", "brief"):
        assert shown in page
    assert "hidden" not in page
    assert "hidden" in text_of(trying.get(root()))


def test_a_search_narrows_the_list(trying):
    page = text_of(trying.get(staff(), q="ECHO"))
    assert "echo" in page
    assert "add_group" not in page


def test_a_long_list_is_cut_and_costs_no_more(trying, django_assert_max_num_queries):
    for number in range(250):
        trying.server.tool(f"many_{number:03}", description="One of many.")(lambda: "x")
    client = staff()
    with django_assert_max_num_queries(8):
        page = text_of(trying.get(client, q="many"))
    assert "many_099" in page
    assert "many_100" not in page
    assert "150 more" in page


def test_a_link_chooses_a_component(trying):
    response = trying.get(staff(), kind="tool", key="echo")
    html = response.content.decode()
    assert 'name="arg.text"' in html
    assert '<input type="date" name="arg.day"' in html
    assert 'type="datetime-local" name="arg.at"' in html
    assert re.search(r'<input type="number" name="arg.number"[^>]* min="1" max="9"', html)
    assert re.search(r'<input type="checkbox" name="arg.colors" value="=blue"', html)
    assert 'name="arg.address.street"' in html
    assert re.search(r'<textarea name="arg.many"', html)
    assert re.search(r'<select name="arg.note:empty"', html)
    assert not has_inline_code(response)


def test_every_field_has_a_label(trying):
    html = trying.get(staff(), kind="tool", key="echo").content.decode()
    form = html[
        html.index('class="mcp-try-form"') : html.index("</form>", html.index("mcp-try-form"))
    ]
    ids = re.findall(r'<(?:input|select|textarea)[^>]* id="(id_[^"]+)"', form)
    labels = re.findall(r'<label[^>]* for="(id_[^"]+)"', form)
    assert ids
    assert set(ids) <= set(labels)


def test_a_tool_runs_with_what_was_entered(trying):
    data = {
        "arg.text": "a\r\nb",
        "arg.number": "3",
        "arg.flag": "=false",
        "arg.color": "=blue",
        "arg.day": "2026-03-01",
        "arg.tags": "one\ntwo",
        "arg.colors": ["=red"],
        "arg.address.street": "High Street",
        "arg.note:empty": "null",
        "arg.amount": "1.50",
    }
    response = trying.run(staff(), "echo", data)
    came = response.context["answer"].structured.text
    for shown in ('"a\\nb"', '"3"', '"False"', "Color.BLUE", "2026-03-01", "['one', 'two']"):
        assert shown in came
    assert "Address(street='High Street', number=1)" in came
    assert '"note": "None"' in came
    assert '"amount": "1.50"' in came


def test_what_does_not_fit_does_not_run(trying):
    response = trying.run(staff(), "echo", {"arg.text": "x", "arg.number": "10"})
    assert response.context["form"].errors["arg.number"]
    assert "answer" not in response.context


def test_json_is_sent_as_it_was_written_and_the_server_answers(trying):
    data = {"as": "json"}
    page = trying.get(staff(), kind="tool", key="echo", **data)
    assert "arg-json.arguments" in page.content.decode()
    sent = {"arg-json.arguments": '{"text": "x", "number": 10}'}
    response = trying.run(root(), "echo", sent, **data)
    assert response.context["answer"].is_error
    assert "number" in response.context["answer"].parts[0].text


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25", "2025-06-18", "2024-11-05"])
def test_it_runs_in_any_revision(trying, revision):
    response = trying.run(staff(), "later", {"arg.a": "21"}, revision=revision)
    assert response.context["answer"].parts[0].text == "42"
    assert revision in text_of(response)
    assert f"revision={revision}" in response.context["form_url"] or revision == "2026-07-28"


def test_the_messages_are_shown_as_they_were_sent(trying):
    response = trying.run(staff(), "later", {"arg.a": "1"})
    [[request, answer]] = response.context["raw"]
    assert '"method": "tools/call"' in request
    assert '"text": "2"' in answer
    many = trying.run(root(), "later", {"arg.a": "1"}, revision="2025-11-25").context["raw"]
    assert ['"initialize"' in many[0][0], '"logging/setLevel"' in many[1][0]] == [True, True]


def test_progress_and_log_messages_are_listed(trying):
    for revision in ("2026-07-28", "2025-11-25"):
        client = visitor("try_components", name=revision)
        response = trying.run(client, "counts", {"arg.to": "2"}, revision=revision)
        notes = [(note.kind, note.text) for note in response.context["answer"].notes]
        assert notes[:2] == [("progress", "1 / 2 counting"), ("progress", "2 / 2 counting")]
        assert notes[2] == ("warning", 'counter: {"done": 2}')


def test_failures_are_shown_as_a_client_gets_them(trying):
    response = trying.run(staff(), "fails", {"arg.how": "=tool"})
    assert response.context["answer"].is_error
    assert "Try another." in text_of(response)
    response = trying.run(root(), "fails", {"arg.how": "=bug"})
    assert "secret detail" not in response.content.decode()
    response = trying.post(
        visitor("try_components", name="b"),
        "desk://groups/{name}",
        {"do": "run", "arg.name": "nobody"},
        kind="template",
    )
    assert response.context["answer"].error["code"] == -32602
    assert "Resource not found" in text_of(response)


def test_a_picture_has_an_address_that_a_strict_policy_allows(trying):
    client = staff()
    response = trying.run(client, "every_block")
    html = response.content.decode()
    assert "data:" not in html
    assert not has_inline_code(response)
    [source] = re.findall(r'<img src="([^"]+)"', html)
    picture = client.get(source)
    assert picture.content == PIXEL
    assert picture["Content-Type"] == "image/png"
    assert picture["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert picture["X-Content-Type-Options"] == "nosniff"


def test_markup_of_an_image_is_a_download_and_no_picture(trying):
    client = staff()
    response = trying.run(client, "every_block")
    kinds = {client.get(address)["Content-Type"] for address in attachments(response)}
    assert kinds == {"image/png", "application/octet-stream", "audio/wav"}
    assert all(
        client.get(address)["Content-Disposition"].startswith('attachment; filename="every_block-')
        for address in attachments(response)
    )


def test_links_of_an_answer_lead_to_what_this_server_has(trying):
    response = trying.run(staff(), "every_block")
    links = [part.form_url for part in response.context["answer"].parts if part.uri]
    assert links == [*[f"{trying.url}?kind=resource&key=desk%3A%2F%2Fabout"] * 2, ""]


def test_a_long_text_is_cut_with_a_download(trying):
    client = staff()
    response = trying.run(client, "long_text")
    part = response.context["answer"].parts[0]
    assert part.is_cut
    assert len(part.text) == 20_000
    download = client.get(part.source)
    assert len(download.content) == 50_000
    assert download["Content-Type"] == "text/plain"


def test_an_attachment_is_for_one_user_in_one_session_and_for_a_while(trying):
    client = staff()
    [source, *_] = attachments(trying.run(client, "every_block"))
    assert client.get(source).status_code == 200
    assert root().get(source).status_code == 404
    Attachment.objects.update(expires_at="2000-01-01T00:00:00Z")
    assert client.get(source).status_code == 404
    assert client.get(f"{trying.url}attachment/none").status_code == 404
    assert client.get(f"{trying.url}elsewhere").status_code == 404


def test_a_resource_is_read(trying):
    client = staff()
    page = trying.get(client, kind="resource", key="desk://about")
    assert "There are no arguments." in text_of(page)
    response = trying.run(client, "desk://about", kind="resource")
    assert response.context["answer"].parts[0].text == '{\n  "desk": 1\n}'
    response = trying.run(client, "desk://logo", kind="resource")
    assert response.context["answer"].parts[0].kind == "image"


def test_a_uri_leads_to_the_template_that_it_fits(trying):
    response = trying.get(staff(), kind="resource", key="desk://groups/ops")
    assert response.context["target"].kind == "template"
    assert 'value="ops"' in response.content.decode() or ">\nops<" in response.content.decode()


def test_a_template_is_read_by_its_variables(trying, django_user_model):
    from django.contrib.auth.models import Group

    Group.objects.create(name="night shift")
    client = staff()
    template = {"kind": "template"}
    response = trying.run(client, "desk://groups/{name}", {"arg.name": "night shift"}, **template)
    assert response.context["answer"].parts[0].text == "night shift"
    assert "desk://groups/night%20shift" in text_of(response)
    response = trying.run(client, "desk://groups/{name}", {"arg.name": ""}, **template)
    assert "missing or empty" in text_of(response)


def test_suggestions_are_offered_and_taken_without_javascript(trying):
    client = staff()
    query = {"kind": "prompt"}
    data = {"arg.topic": "ra", "arg.tone": "=formal", "suggest": "topic"}
    response = trying.post(client, "brief", data, **query)
    html = response.content.decode()
    assert 'name="arg.topic:suggested" value="raformal"' in html
    assert "errornote" not in html
    taken = {"do": "run", "arg.topic": "ra", "arg.topic:suggested": "rain", "arg.tone": "=formal"}
    response = trying.post(client, "brief", taken, **query)
    parts = response.context["answer"].parts
    assert [(part.role, part.text) for part in parts] == [
        ("user", "rain, formal."),
        ("assistant", "Of course."),
    ]


def test_suggestions_for_what_has_none_are_none(trying):
    response = trying.post(staff(), "brief", {"suggest": "tone"}, kind="prompt")
    assert response.status_code == 200
    assert "No suggestions." in text_of(response)


def test_every_page_costs_a_bounded_number_of_queries(trying, django_assert_max_num_queries):
    client = staff()
    with django_assert_max_num_queries(8):
        trying.get(client, kind="tool", key="echo")
    with django_assert_max_num_queries(14):
        trying.run(client, "echo", {"arg.text": "x"})
