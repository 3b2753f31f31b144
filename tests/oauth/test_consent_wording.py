"""Texts of the pages: they state the facts, in the language of the request."""

from __future__ import annotations

import gettext
import re
from pathlib import Path

import django
import pytest
from django.utils import translation

import mcp_django
from mcp_django.oauth.models import Consent
from tests.oauth import parties
from tests.oauth.asking import ask

HERE = Path(mcp_django.__file__).parent
MARKED = (
    r'{% translate "([^"]+)" %}',
    r"{% blocktranslate[^%]*%}(.+?){% endblocktranslate %}",
    r'\b_\(\s*"([^"]+)"',
)
# Texts that mean the same here and in Django.
SHARED = {
    "Add",
    "Add %(name)s",
    "Add link",
    "All",
    "Arguments",
    "Clear",
    "Description",
    "Enter a number.",
    "Enter a whole number.",
    "Field",
    "Fields",
    "File",
    "Filter",
    "Home",
    "Messages",
    "Model name",
    "No",
    "No, take me back",
    "Order",
    "Past 7 days",
    "Permissions",
    "Search",
    "Sessions",
    "Text",
    "Time",
    "Today",
    "User",
    "Yes",
    "active",
    "and",
    "content",
    "groups",
    "name",
    "now",
    "permission",
    "permissions",
    "session",
    "sessions",
    "title",
    "user",
    "version",
}


@pytest.fixture
def browser(client, user):
    client.force_login(user)
    return client


def test_no_word_is_one_that_django_translates_as_something_else():
    # Catalogs are merged: the month would be shown where "May" means "is allowed to".
    texts = set()
    for suffix in ("*.html", "*.py"):
        for path in HERE.rglob(suffix):
            source = path.read_text(encoding="utf-8")
            texts |= {text for pattern in MARKED for text in re.findall(pattern, source)}
    assert "Connected assistants" in texts
    known: set[str] = set()
    for path in Path(django.__file__).parent.rglob("locale/de/LC_MESSAGES/django.mo"):
        with path.open("rb") as file:
            known |= {text for text in gettext.GNUTranslations(file)._catalog if text in texts}
    assert known <= SHARED


def test_every_text_of_the_templates_is_marked_for_translation():
    unmarked = {}
    for path in (HERE / "oauth" / "templates").rglob("*.html"):
        source = path.read_text(encoding="utf-8")
        source = re.sub(r"{% blocktranslate.*?{% endblocktranslate %}", "", source, flags=re.DOTALL)
        source = re.sub(r"{%.*?%}|{{.*?}}|<!doctype html>", "", source)
        texts = [text for text in re.split(r"<[^>]*>|\n", source) if re.search(r"[A-Za-z]", text)]
        if texts:
            unmarked[path.name] = texts
    assert unmarked == {}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (parties.RESOURCE, "to use this site on your behalf"),
        ([parties.RESOURCE, parties.OTHER_RESOURCE], "to use these servers on your behalf"),
        (None, "did not say which server"),
    ],
)
def test_only_a_client_that_named_no_server_is_said_to(browser, app, resource, text):
    page = ask(browser, app, resource=resource).content.decode()
    assert text in page
    assert page.count("did not say which server") == (resource is None)


@pytest.mark.django_db
def test_a_server_that_is_gone_is_named_by_its_address_once(browser, user, app):
    url = f"{parties.ORIGIN}/gone/mcp"
    Consent.objects.create(user=user, client_id=app.client_id, resource=url, scopes=["mcp"])
    assert browser.get("/oauth/connections/").content.decode().count(url) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "direction"), [("ar", "rtl"), ("de", "ltr")])
def test_the_page_of_a_server_has_the_direction_of_its_language(client, language, direction):
    with translation.override(language):
        page = client.get("/mcp", headers={"Accept": "text/html"}).content.decode()
    assert f'<html lang="{language}" dir="{direction}">' in page
