"""The scheme of a resource's URI in any case: clients may lowercase it (RFC 3986, section 3.1)."""

from __future__ import annotations

import pytest

from mcp_django import Context
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all
from tests.spec import spec


@pytest.fixture
def server():
    server = open_to_all()

    @server.resource("Shop://About", aliases=["OLD://About"])
    def about() -> str:
        return "about"

    @server.resource("Shop://Orders/{number}", aliases=["OLD://{number}"])
    def order(number: int) -> str:
        return str(number)

    @server.completion("SHOP://Orders/{number}", "number")
    def numbers(value: str) -> list[str]:
        return [f"{value}1"]

    @server.tool
    def read(ctx: Context, uri: str) -> str:
        return str(ctx.read_resource(uri)[0].content)

    return server


@spec("RSC-1")
def test_a_resource_is_listed_with_its_scheme_in_lower_case(server):
    client = MCPClient(server=server)
    assert [resource["uri"] for resource in client.list_resources()] == ["shop://About"]
    (template,) = client.list_resource_templates()
    assert template["uriTemplate"] == "shop://Orders/{number}"


@spec("RSC-13")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("shop://About", "about"),
        ("Shop://About", "about"),
        ("SHOP://About", "about"),
        ("old://About", "about"),
        ("OLD://About", "about"),
        ("sHop://Orders/7", "7"),
        ("Old://7", "7"),
    ],
)
def test_a_resource_is_read_by_its_scheme_in_any_case(uri, text, version, server):
    client = MCPClient(server=server, protocol_version=version)
    (contents,) = client.read_resource(uri)
    # The URI as it was requested, because clients compare it.
    assert (contents["uri"], contents["text"]) == (uri, text)


def test_what_follows_the_scheme_is_compared_as_it_is(server):
    for uri in ("shop://about", "shop://ABOUT", "shop://orders/7"):
        with pytest.raises(ErrorResponse):
            MCPClient(server=server).read_resource(uri)


def test_a_template_is_completed_by_its_scheme_in_any_case(server):
    client = MCPClient(server=server)
    for uri in ("shop://Orders/{number}", "Shop://Orders/{number}", "SHOP://Orders/3"):
        ref = {"type": "ref/resource", "uri": uri}
        argument = {"name": "number", "value": "4"}
        completed = client.request("completion/complete", {"ref": ref, "argument": argument})
        assert completed["completion"]["values"] == ["41"]


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("shop://About", {}),
        ("sHOP://About", {}),
        ("other://about", {"aliases": ["SHOP://About"]}),
        ("old://About", {}),
        ("SHOP://Orders/{number}", {}),
    ],
)
def test_uris_that_differ_in_the_case_of_the_scheme_are_the_same(uri, options, server):
    if "{" in uri:

        def another(number: int) -> str:
            return ""
    else:

        def another() -> str:
            return ""

    with pytest.raises(AlreadyRegistered, match="already"):
        server.resource(uri, **options)(another)
