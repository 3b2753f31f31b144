"""Mistakes are reported when a view is registered, or by the system check."""

from weakref import WeakSet

import pytest
from django import forms as django_forms
from django.core.exceptions import ImproperlyConfigured
from django.views.generic import FormView, TemplateView

from mcp_django import server as server_module
from mcp_django.checks.components import check_views
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.test import MCPClient
from tests.integrations.views import forms
from tests.kit.servers import real_client


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Remove the servers of earlier tests, whose components the system check would include."""
    monkeypatch.setattr(server_module, "_servers", WeakSet())


class Upload(django_forms.Form):
    file = django_forms.FileField()


class UploadView(FormView):
    form_class = Upload


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "put"}, "method must be 'get' or 'post', not 'put'"),
        ({"kind": "tol"}, "no kind named 'tol'; did you mean 'tool'"),
        ({"kind": "resource"}, "a resource needs a URI; pass uri="),
        ({"kind": "prompt", "uri": "shop://x"}, "a prompt has no URI"),
        ({"kind": "prompt", "method": "post"}, "only a tool can use method='post'"),
        ({"form": forms.PriceForm}, "form=… needs method='post'"),
        ({"method": "post", "form": Upload}, r"Upload\.file: A FileField cannot be filled"),
        ({"uri": "no uri"}, "no uri"),
        ({"uri": "shop://x", "destructive": True}, "A resource has no option 'destructive'"),
        ({"query": "season"}, "query must map names to types"),
        ({"query": {"x": type("Odd", (), {})}}, "x: JSON cannot express a type"),
        ({"scopes": "shop:read"}, r"write scopes=\['shop:read'\]"),
        ({"name": "price list"}, "'price list' is not a valid tool name"),
    ],
)
def test_a_declaration_that_cannot_work_says_what_to_write(server, options, expected):
    with pytest.raises(ImproperlyConfigured, match=expected):
        server.register_view("shop:price_list", **options)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (TemplateView, "'TemplateView' has no form"),
        (42, "takes a class-based view or the name of its URL"),
    ],
)
def test_a_view_without_a_form_is_no_form(server, view, expected):
    with pytest.raises(ImproperlyConfigured, match=expected):
        server.register_form(view)


def test_a_second_component_of_a_name_is_refused(server):
    server.register_view("who")
    with pytest.raises(AlreadyRegistered, match="Rename one of them"):
        server.register_view("who")


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (lambda s: s.register_view("shop:pricelist"), "did you mean 'shop:price_list'?"),
        (lambda s: s.register_view("price_list"), "did you mean 'shop:price_list'?"),
        (lambda s: s.register_view("unnamed"), "has unnamed groups"),
        (lambda s: s.register_view("either"), "has alternatives (|)"),
        (lambda s: s.register_view("mcp_django:endpoint"), "is an MCP endpoint"),
        (lambda s: s.register_view("article", uri="shop://a"), "The URL needs 'slug'"),
        (lambda s: s.register_view("article", uri="shop://a/{slgu}"), "did you mean 'slug'?"),
        (lambda s: s.register_form("who"), "'who' has no form"),
        (lambda s: s.register_form(UploadView), "No URL leads to UploadView"),
        (lambda s: s.register_form("changing"), "pass it: register_form(…, form=…)"),
    ],
)
def test_what_the_urlconf_does_not_have_is_found_by_the_check(server, declare, expected):
    declare(server)
    (message,) = [error for error in check_views(None) if error.obj is server]
    assert message.id == "mcp_django.E009"
    assert expected in message.msg
    assert message.hint


def test_what_the_urlconf_has_is_no_error(server):
    server.register_view("shop:price_list")
    server.register_form(forms.ContactView)
    server.register_form("changing", form=forms.ContactForm)
    assert [message for message in check_views(None) if message.obj is server] == []


@pytest.mark.django_db
def test_one_broken_component_does_not_break_the_others(server, caplog):
    server.register_view("who")
    server.register_view("whoo")
    client = real_client(server=server)
    assert [tool["name"] for tool in client.list_tools()] == ["who", "whoo"]
    assert "There is no URL named 'whoo'; did you mean 'who'?" in caplog.text
    result = client.call_tool("whoo", check=False)
    assert result.is_error
    assert "was logged" in result.text
    assert client.call_tool("who").text == "nobody"


@pytest.mark.django_db
def test_nothing_is_looked_up_while_it_is_declared(server, site):
    site.ROOT_URLCONF = "tests.integrations.views.no_such_module"
    server.register_view("who")
    server.register_form(forms.ContactView)
    server.register_view("article", uri="shop://articles/{slug}")
    site.ROOT_URLCONF = "tests.integrations.views.urls"
    assert MCPClient(server=server).call_tool("who").text == "nobody"


OTHER = "tests.integrations.views.other_urls"


def test_a_name_that_only_one_host_has_is_no_mistake(server, site):
    server.register_view("only_here", urlconf=OTHER)
    server.register_form("add_here", urlconf=OTHER)
    assert [message for message in check_views(None) if message.obj is server] == []
    client = MCPClient(server=server)
    listed = {tool["name"]: tool["inputSchema"]["properties"] for tool in client.list_tools()}
    assert {name: list(properties) for name, properties in listed.items()} == {
        "add_here": ["name"],
        "only_here": ["word"],
    }
    # This host does not have the view.
    assert client.call_tool("only_here", {"word": "x"}, check=False).text == "Not found."
    site.MIDDLEWARE = [*site.MIDDLEWARE, "tests.integrations.views.middleware.by_host"]
    site.ALLOWED_HOSTS = ["localhost"]
    assert client.call_tool("only_here", {"word": "x"}).structured == {"word": ["str", "x"]}


def test_a_urlconf_that_is_none_is_said_by_the_check(server):
    server.register_view("only_here", urlconf="tests.no_urls")
    (message,) = [error for error in check_views(None) if error.obj is server]
    assert "There is no URLconf 'tests.no_urls'" in message.msg
    assert [tool["name"] for tool in MCPClient(server=server).list_tools()] == ["only_here"]
