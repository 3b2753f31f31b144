"""A server to try things on: a component for each shape of arguments, answer and question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import count
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group, Permission
from django.test import Client
from pydantic import BaseModel, Field, SecretStr

from mcp_django import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    MCPServer,
    Message,
    ResourceLink,
    Text,
    ToolError,
)
from mcp_django.auth.permissions import IsStaff
from mcp_django.components.component import Completion, Component
from mcp_django.components.declare import build_tool as declared_tool
from mcp_django.models import Server
from tests.kit.servers import person
from tests.sites.example.mcp import PIXEL

_numbers = count(1)
NASTY = "<script>alert('x')</script>"


class Color(Enum):
    """Colors."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    """Where somebody lives."""

    street: str
    number: int = 1


class Login(BaseModel):
    """What is for nobody to see."""

    pin: SecretStr = SecretStr("")
    codes: list[SecretStr] = []


class Previewing:
    """A dry run."""

    def is_one(self, arguments: Mapping[str, Any]) -> bool:
        """Whether it is one."""
        return bool(arguments["preview"])

    def of(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of one."""
        return {**arguments, "preview": True}


class Trying:
    """One server with its row, and the pages for it."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.row = Server.objects.get_or_create(name=server.name)[0]
        self.url = f"/admin/mcp_django/server/{self.row.pk}/try/"

    def get(self, client: Client, **query: str) -> Any:
        """A page that a link leads to."""
        return client.get(self.url, query)

    def post(self, client: Client, key: str, data: dict[str, Any], **query: str) -> Any:
        """What comes of a form of a component."""
        query = {"kind": "tool", "key": key, **query}
        return client.post(self.url, data, query_params=query)

    def run(
        self, client: Client, key: str, data: dict[str, Any] | None = None, **query: str
    ) -> Any:
        """What comes of a component, confirmed where that is asked for."""
        response = self.post(client, key, {"do": "run", **(data or {})}, **query)
        if "is_destructive" not in (response.context or {}):
            return response
        return self.go_on(client, response, do="confirmed")

    def go_on(self, client: Client, response: Any, **data: Any) -> Any:
        """The next page of one with a state."""
        return client.post(self.url, {"state": response.context["state"], **data})


def desk(**options: Any) -> MCPServer:
    """The server."""
    # One of a name that is not yet collected would be found by it.
    server = MCPServer(f"trying-{next(_numbers)}", **options)
    components, completions = _declared()
    for component in components:
        server.add(component)
    for completion in completions:
        server.registry.add_completion(completion)
    return server


@cache
def _declared() -> tuple[list[Component], list[Completion]]:
    """What each desk has, declared once: reading the signatures takes longer than most tests."""
    server = MCPServer("trying")
    for declare in (_declare_readers, _declare_writers, _declare_questions, _declare_others):
        declare(server)
    return [*server.registry], [*server.registry.completions.values()]


def _declare_readers(server: MCPServer) -> None:
    tool: Callable[..., Any] = server.tool

    @tool(read_only=True)
    def echo(
        text: str,
        number: Annotated[int, Field(ge=1, le=9)] = 1,
        share: float | None = None,
        flag: bool | None = None,
        color: Color = Color.RED,
        day: date | None = None,
        at: datetime | None = None,
        tags: list[str] = [],  # noqa: B006
        colors: list[Color] = [],  # noqa: B006
        address: Address | None = None,
        many: list[Address] = [],  # noqa: B006
        note: str | None = "as it was",
        amount: Decimal | None = None,
    ) -> dict[str, Any]:
        """Say what came."""
        return {key: str(value) for key, value in locals().items()}

    @tool(read_only=True)
    async def later(a: int) -> int:
        """Run on a loop."""
        return a * 2

    @tool(read_only=True)
    def every_block() -> list[Text | Image | Audio | EmbeddedResource | ResourceLink]:
        """One block of every kind."""
        return [
            Text(NASTY),
            Image(PIXEL),
            Image(b"<svg onload=alert(1)>", mime_type="image/svg+xml"),
            Audio(b"RIFF"),
            EmbeddedResource("desk://about", text="{}", mime_type="application/json"),
            ResourceLink("desk://about", NASTY, description=NASTY),
            ResourceLink("elsewhere://x", "elsewhere"),
        ]

    @tool(read_only=True)
    def long_text() -> str:
        """More than a page shows."""
        return "x" * 50_000

    @tool(read_only=True)
    def fails(how: Literal["tool", "bug"]) -> str:
        """Fail."""
        raise ToolError(f"Try another. {NASTY}") if how == "tool" else RuntimeError("secret detail")

    @tool(read_only=True)
    def counts(ctx: Context, to: int) -> str:
        """Report progress."""
        for step in range(to):
            ctx.report_progress(step + 1, to, "counting")
        ctx.log("warning", {"done": to}, logger="counter")
        return "counted"

    @tool(read_only=True, permission="auth.view_group")
    def hidden() -> str:
        """Not for everybody."""
        return "hidden"

    @tool(name="nasty", title=NASTY, description=NASTY, read_only=True)
    def nasty(
        word: Annotated[Literal["<b>bold</b>", "plain"], Field(title=NASTY, description=NASTY)],
    ) -> str:
        return word


def _declare_writers(server: MCPServer) -> None:
    tool: Callable[..., Any] = server.tool

    @tool(destructive=True, sensitive=["pin"])
    def add_group(name: str, pin: str = "") -> str:
        """Make a group."""
        Group.objects.create(name=name)
        return f"Made {name}."

    def rename(name: str, preview: bool = False) -> str:
        """Make a group, or say that one would be made."""
        if preview:
            return f"Would make {name}."
        Group.objects.create(name=name)
        return f"Made {name}."

    server.add(replace(declared_tool(rename, {}), dry_run=Previewing()))

    @tool
    def send(preview: bool = False) -> str:
        """Send something, with a picture of it where that is wanted; it is no dry run."""
        Group.objects.create(name=f"sent, {preview}")
        return "Sent."

    @tool
    def asks_first(ctx: Context) -> str:
        """Ask, and make a group."""
        name = ctx.elicit("Which name?", str)
        Group.objects.create(name=f"{name} {Group.objects.count()}")
        return "Made."

    @tool(sensitive=["key"])
    def keep(login: Login, others: list[Login] = [], key: str = "", pin: str = "") -> str:  # noqa: B006
        """Keep secrets."""
        return "Kept."


def _declare_questions(server: MCPServer) -> None:
    tool: Callable[..., Any] = server.tool

    @tool(read_only=True)
    def asks(ctx: Context) -> str:
        """Ask twice."""
        ctx.log("info", "asking")
        color = ctx.elicit("Which color?", Color)
        sure = ctx.elicit(f"{color.value}, really? {NASTY}", bool)
        return f"{color.value} {sure}"

    @tool(read_only=True)
    def asks_page(ctx: Context) -> str:
        """Send the user to a page."""
        ctx.elicit_url("Sign in there.", "https://pay.example/form?a=1&b=2")
        return "was there"

    @tool(read_only=True)
    def asks_model(ctx: Context) -> str:
        """Ask the model."""
        return ctx.sample(f"Say something. {NASTY}").text

    @tool(read_only=True)
    def asks_folders(ctx: Context) -> str:
        """Ask for folders."""
        return ", ".join(root.uri for root in ctx.list_roots())


def _declare_others(server: MCPServer) -> None:
    @server.resource("desk://about", mime_type="application/json")
    def about() -> str:
        """What the desk is."""
        return '{"desk": 1}'

    @server.resource("desk://logo", mime_type="image/png")
    def logo() -> bytes:
        """The logo."""
        return PIXEL

    @server.resource("desk://groups/{name}")
    def group(name: str) -> str:
        """A group by its name."""
        return Group.objects.get(name=name).name

    @server.resource("desk://vault", permission=IsStaff)
    def vault() -> str:
        """For staff."""
        return "gold"

    @server.completion(group, "name")
    def names(value: str) -> list[str]:
        """Names."""
        return [f"{value}-one", NASTY]

    @server.prompt
    def brief(topic: str, tone: Literal["formal", "warm"] = "warm") -> list[Message]:
        """Brief somebody."""
        return [Message(f"{topic}, {tone}."), Message("Of course.", role="assistant")]

    @server.completion("brief", "topic")
    async def topics(value: str, tone: str) -> list[str]:
        """Topics."""
        return [f"{value}{tone}"]


def visitor(*codenames: str, name: str = "staff", is_superuser: bool = False) -> Client:
    """A signed-in member of staff with these permissions of this app, and no others."""
    user = person(name, is_staff=True, is_superuser=is_superuser)
    known = Permission.objects.filter(content_type__app_label="mcp_django")
    user.user_permissions.set(known.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def root() -> Client:
    """A superuser, signed in."""
    return visitor(name="root", is_superuser=True)
