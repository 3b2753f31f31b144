"""A misspelled option, one of a wrong type and one of another kind are errors of type checkers.

Each comment is needed: mypy (`warn_unused_ignores`) and pyright
(`reportUnnecessaryTypeIgnoreComment`) report one that is not.
"""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.contrib.auth.models import Group
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from mcp_django import MCPServer, mcp

server = MCPServer("options")


class Form(forms.Form):
    text = forms.CharField()


class Page(ViewSet):
    pass


class Report(APIView):
    pass


# Misspelled.
mcp.tool(titel="Takings")  # type: ignore[call-overload]
mcp.tool("takings", readonly=True)  # type: ignore[call-overload]
mcp.resource("shop://a", mimetype="text/plain")  # type: ignore[call-arg]
mcp.prompt(templates="a.txt")  # type: ignore[call-overload]
mcp.register_view("shop:a", readible=True)  # type: ignore[call-arg]
mcp.register_form(Form, querysets=None)  # type: ignore[call-arg]
mcp.register_viewset(Page, action=["list"])  # type: ignore[call-arg]
mcp.register_api_view(Report, method=["get"])  # type: ignore[call-arg]
mcp.register_skills("skills", prefixes="a")  # type: ignore[call-arg]
mcp.register_admin(Group, field=["name"])  # type: ignore[call-arg]

# Of a wrong type.
server.tool(read_only="yes")  # type: ignore[call-overload]
server.tool(task="always")  # type: ignore[call-overload]
server.tool(approval="manager")  # type: ignore[call-overload]
server.resource("shop://a", cache_ttl=60)  # type: ignore[arg-type]
server.resource("shop://a", subscribe="no")  # type: ignore[arg-type]
server.prompt(timeout="5s")  # type: ignore[call-overload]
server.register_view("shop:a", method="put")  # type: ignore[arg-type]
server.register_form(Form, instance=Group)  # type: ignore[arg-type]
server.register_viewset(Page, names=["list"])  # type: ignore[arg-type]
server.register_api_view(Report, scopes=1)  # type: ignore[arg-type]
server.register_skills("skills", cache_ttl=60)  # type: ignore[arg-type]
server.register_admin(Group, page_size="50")  # type: ignore[arg-type]

# Of another kind.
mcp.tool(mime_type="text/plain")  # type: ignore[call-overload]
mcp.tool(template="a.txt")  # type: ignore[call-overload]
mcp.resource("shop://a", destructive=True)  # type: ignore[call-arg]
mcp.prompt(ui="a.html")  # type: ignore[call-overload]
mcp.register_view("shop:a", plural="as")  # type: ignore[call-arg]
mcp.register_form(Form, readable=True)  # type: ignore[call-arg]
mcp.register_viewset(Page, read_only=True)  # type: ignore[call-arg]
mcp.register_api_view(Report, actions=["list"])  # type: ignore[call-arg]
mcp.register_skills("skills", timeout=1)  # type: ignore[call-arg]
mcp.register_admin(Group, methods=["get"])  # type: ignore[call-arg]

# As it should be.
mcp.tool(name="takings", read_only=True)
mcp.resource("shop://a", name="a", mime_type="text/plain", cache_ttl=timedelta(minutes=1))
mcp.register_skills("skills", prefix="shop", rate="100/h")
mcp.register_admin(Group, fields=["name"], uri="shop://groups/{id}")
