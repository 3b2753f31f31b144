"""Where a REST view is called: at one of its own URLs, or not at all."""

from weakref import WeakSet

import pytest
from django.contrib.auth.decorators import login_required
from django.urls import include, path

from mcp_django import MCPServer, server as server_module
from mcp_django.auth.permissions import AllowAny
from mcp_django.checks.components import check_views
from tests.integrations.rest import odd
from tests.integrations.rest.conftest import give_address
from tests.integrations.rest.test_calls_surroundings import server_of
from tests.sites.shop.models import Tag


@pytest.fixture(autouse=True)
def addresses(site, settings, monkeypatch):
    """Set the URLconf with the odd views; the system check sees only the test's own servers."""
    monkeypatch.setattr(server_module, "_servers", WeakSet())
    settings.ROOT_URLCONF = "tests.integrations.rest.odd"


def test_a_wrong_basename_is_told_to_the_owner_and_goes_past_nothing(client_of, caplog):
    server = MCPServer("odd", permission=AllowAny)
    server.register_viewset(odd.SpaceViewSet, basename="spase", actions=["retrieve"])
    server.register_api_view(odd.WhoView, url_name="whoo")
    tag = Tag.objects.earliest("pk")
    assert client_of("", server).call_tool("get_spase", {"pk": tag.pk}, check=False).is_error
    text = "URL name spase-detail, which does not exist; the URLconf has v1:space-detail"
    assert text in caplog.text
    messages = [message for message in check_views(None) if message.obj is server]
    assert [message.id for message in messages] == ["mcp_django.E009"] * 2
    assert text in messages[0].msg
    assert "whoo, which does not exist; the URLconf has who, who-guarded." in messages[1].msg


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: type("Nowhere", (odd.WhoView,), {}), "Nowhere.get"),
        (odd.WhoView.as_view, "WhoView.get"),
        (lambda: type("Nowhere", (odd.SpaceViewSet,), {}), "Nowhere.list"),
    ],
)
def test_what_has_no_url_is_not_served(client_of, caplog, make, name):
    view, server = make(), MCPServer("odd", permission=AllowAny)
    if hasattr(view, "list"):
        server.register_viewset(view, basename="nowhere", actions=["list"], names={"list": "it"})
    else:
        server.register_api_view(view, name="it")
    text = f"No URL leads to {name}; add a URL for it to the URLconf."
    (problem,) = [message for message in check_views(None) if message.obj is server]
    assert (problem.id, problem.msg) == ("mcp_django.E009", f"The tool 'it': {text}")
    answer = client_of("ada", server).call_tool("it", check=False)
    assert answer.is_error
    assert "was logged" in answer.text
    assert text in caplog.text


def test_a_url_without_a_name_is_an_address_outside_of_namespaces(client_of, settings):
    server = server_of(odd.AddressView)
    here = [path("here/<str:word>/", odd.AddressView.as_view())]
    settings.ROOT_URLCONF = type("URLs", (), {"urlpatterns": here})
    assert (
        client_of("", server).call_tool("address", {"word": "x"}).structured["path"] == "/here/x/"
    )
    inside = [path("in/", include((here, "spaces")))]
    settings.ROOT_URLCONF = type("URLs", (), {"urlpatterns": inside})
    (problem,) = [message for message in check_views(None) if message.obj is server]
    assert "No URL leads to AddressView.get; add a URL with a name" in problem.msg
    assert client_of("", server).call_tool("address", {"word": "x"}, check=False).is_error


def test_what_the_urlconf_puts_around_a_function_holds(client_of, settings):
    server = server_of(odd.plain)
    give_address(settings, login_required(odd.plain))
    assert [message for message in check_views(None) if message.obj is server] == []
    assert client_of("ada", server).call_tool("plain").structured == {"user": "ada"}
    assert client_of("", server).call_tool("plain", check=False).is_error


def test_the_urls_of_one_host_are_named(client_of, settings):
    settings.ROOT_URLCONF = "tests.integrations.rest.urls"
    server = server_of(odd.WhoView, url_name="who", urlconf="tests.integrations.rest.odd")
    assert [message for message in check_views(None) if message.obj is server] == []
    # This host does not have the view.
    assert client_of("ada", server).call_tool("who", check=False).text == "Not found."
    settings.ROOT_URLCONF = "tests.integrations.rest.odd"
    assert client_of("ada", server).call_tool("who").structured["user"] == "ada"
    lost = server_of(odd.WhoView, urlconf="tests.no_urls")
    (problem,) = [message for message in check_views(None) if message.obj is lost]
    assert "There is no URLconf 'tests.no_urls'" in problem.msg
