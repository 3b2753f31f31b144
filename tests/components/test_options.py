"""The options of decorators and of `register_*`: misspelled names fail where they are written."""

from __future__ import annotations

import pytest
from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured

from tests.kit.servers import open_to_all


def nothing():
    """Do nothing."""


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda server: server.tool(titel="x")(nothing), "A tool has no option 'titel'.*title"),
        (
            lambda server: server.tool("a", mime_type="x")(nothing),
            "A tool has no option 'mime_type'",
        ),
        (
            lambda server: server.resource("shop://a", mimetype="x")(nothing),
            "A resource has no option 'mimetype'.*mime_type",
        ),
        (
            lambda server: server.resource("shop://a", ui="a.html")(nothing),
            "A resource has no option 'ui'",
        ),
        (
            lambda server: server.prompt(templates="x")(nothing),
            "A prompt has no option 'templates'.*template",
        ),
        (
            lambda server: server.register_view("shop:a", readible=True),
            r"register_view\(\) has no option 'readible'.*readable",
        ),
        (
            lambda server: server.register_form(forms.Form, plural="x"),
            r"register_form\(\) has no option 'plural'",
        ),
        (
            lambda server: server.register_viewset(object, action=["list"]),
            r"register_viewset\(\) has no option 'action'.*actions",
        ),
        (
            lambda server: server.register_api_view(object, method=["get"]),
            r"register_api_view\(\) has no option 'method'.*methods",
        ),
        (
            lambda server: server.register_skills("skills", timeout=1),
            r"register_skills\(\) has no option 'timeout'; it has prefix, permission",
        ),
        (
            lambda server: server.register_admin(Group, field=["name"]),
            r"register_admin\(\) has no option 'field'.*fields",
        ),
    ],
)
def test_an_unknown_option_is_named_with_what_is_meant(declare, text):
    server = open_to_all()
    with pytest.raises(ImproperlyConfigured, match=text):
        declare(server)
    assert not list(server.registry)


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_the_name_is_given_once_by_its_place_or_by_its_name(kind):
    server = open_to_all()
    getattr(server, kind)("first")(nothing)
    getattr(server, kind)(name="second")(nothing)
    getattr(server, kind)("", name="third")(nothing)
    getattr(server, kind)(nothing)
    names = [component.name for component in server.registry]
    assert names == ["first", "second", "third", "nothing"]
    with pytest.raises(ImproperlyConfigured, match="given twice, as 'a' and as name='b'"):
        getattr(server, kind)("a", name="b")
