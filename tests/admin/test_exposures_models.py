"""A model is exposed in the admin, step by step."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from mcp_django import MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, ModelExposure, Topic as TopicRow
from mcp_django.overrides.model_signals import signal_relay
from mcp_django.overrides.state import override_version
from mcp_django.overrides.sync import sync_rows
from mcp_django.server import all_servers
from mcp_django.storage.versions import TopicKey
from mcp_django.test import MCPClient
from tests.integrations.models.building import order
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order, Remark, Voucher

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/modelexposure/"
ADD = f"{LIST}add/?server=desk&target=shop.Order"
FORM: dict[str, Any] = {
    "is_enabled": "on",
    "name": "",
    "plural": "",
    "description": "What was bought.",
    "paths-fields": ["number", "status", "customer"],
    "paths-filter_fields": ["status"],
    "paths-search_fields": ["number"],
    "paths-ordering_fields": ["number"],
    "ordering": "-number",
    "operations": ["list", "get"],
    "page_size": "20",
    "uri": "",
    "scopes": "",
}


@pytest.fixture(autouse=True)
def server(settings, few_servers):
    """A server that is empty in code."""
    settings.ROOT_URLCONF = "tests.admin.urls"
    override_version.record_change()
    made = MCPServer("desk", permission=AllowAny)
    yield made
    signal_relay.connect_receivers([])


def staff(*codenames: str, username: str = "eve") -> Any:
    """A member of staff with these permissions and no others."""
    user = person(username, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


@pytest.fixture
def root(client):
    user = person("root", is_staff=True, is_superuser=True)
    client.force_login(user)
    return user


def page(response: Any) -> str:
    return response.content.decode()


def test_first_the_server_and_the_model_are_chosen(client, root):
    text = page(client.get(f"{LIST}add/"))
    for shown in ('value="desk"', 'value="shop.Order"', 'value="auth.User"'):
        assert shown in text
    for closed in ("sessions.Session", "mcp_django.", "admin.LogEntry", "oauth2_provider."):
        assert f'value="{closed}' not in text
    for query in ("?server=gone&target=shop.Order", "?server=desk&target=sessions.Session"):
        refused = client.get(f"{LIST}add/{query}")
        assert "errorlist" in page(refused)
        assert client.post(f"{LIST}add/{query}", FORM).status_code == 200
    assert not ModelExposure.objects.exists()


def test_an_exposure_and_its_components_lead_to_each_other(client, root):
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    sync_rows(list(all_servers()))
    components = Component.objects.filter(server="desk")
    assert {component.key for component in components} == {"list_orders", "get_order"}
    shown = page(client.get(f"{LIST}{row.pk}/change/"))
    for component in components:
        link = f"/admin/mcp_django/component/{component.pk}/change/"
        assert f'<a href="{link}">' in shown
        assert f'<a href="{LIST}{row.pk}/change/">Edit the exposure</a>' in page(client.get(link))
    client.force_login(staff("view_modelexposure"))
    assert "/admin/mcp_django/component/" not in page(client.get(f"{LIST}{row.pk}/change/"))
    client.force_login(staff("view_component", username="bob"))
    assert "Edit the exposure" not in page(client.get(link))


def test_then_its_fields_and_a_client_has_it(client, root):
    text = page(client.get(ADD))
    assert 'name="paths-fields" value="number"' in text
    assert 'name="paths-fields" value="customer__name"' in text
    assert 'value="customer__password"' not in text
    order("A1")
    order("A2")
    answer = client.post(ADD, FORM)
    assert answer.status_code == 302, page(answer)
    row = ModelExposure.objects.get()
    assert (row.kind, row.server, row.target) == ("model", "desk", "shop.Order")
    assert LogEntry.objects.get().get_change_message() == "Added."
    tools = MCPClient(server=_desk(), user=root)
    records = tools.call_tool("list_orders", {}).structured["items"]
    assert [record["number"] for record in records] == ["A2", "A1"]
    assert "What was bought." in tools.list_tools()[0]["description"]
    change = f"{LIST}{row.pk}/change/"
    shown = page(client.get(change))
    assert "list_orders" in shown
    assert 'value="number" checked' in shown
    assert "<td>A1</td>" in shown
    assert client.post(change, {**FORM, "operations": ["get"]}).status_code == 302
    assert [tool["name"] for tool in tools.list_tools()] == ["get_order"]


def left_out(text: str) -> dict[str, str]:
    """Each field that the form leaves out, with what it says of it."""
    definitions = re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", text, re.DOTALL)
    return {
        path: html.unescape(reason)
        for paths, reason in definitions
        for path in re.findall(r"<code[^>]*>([^<]*)</code>", paths)
    }


def test_what_is_left_out_is_said_with_the_reason(client, root):
    text = page(client.get(ADD.replace("Order", "Customer")))
    reasons = left_out(text)
    assert reasons["password"].startswith("May hold a secret")
    assert reasons["user__password"].startswith("May hold a secret")
    for path in ("user__is_superuser", "user__email", "user__last_login"):
        assert reasons[path].startswith(
            "Reveals more than the name of a user; if clients need it, show it in code"
        )
        assert f'value="{path}"' not in text
    assert 'name="paths-fields" value="user__username"' in text
    assert f"{len(reasons)} fields cannot be exposed" in text
    reasons = left_out(page(client.get(ADD.replace("Order", "Remark"))))
    assert "content_type belongs" not in reasons["content_type"]
    assert reasons["content_type"].startswith(
        "Leads to a model that cannot be exposed: contenttypes.ContentType"
    )
    assert reasons["about"] == "Is neither a column nor a relation to one model."


def test_every_field_is_offered_or_left_out(client, root):
    for model in (Order, Customer, Remark, Voucher, get_user_model()):
        text = page(client.get(f"{LIST}add/?server=desk&target={model._meta.label}"))
        offered = set(re.findall(r'name="paths-fields" value="([^"]*)"', text))
        names = {
            field.name for field in model._meta.get_fields() if not getattr(field, "hidden", False)
        }
        assert names <= offered | set(left_out(text))
        assert not offered & set(left_out(text))


def _desk() -> MCPServer:
    return next(server for server in all_servers() if server.name == "desk")


def test_a_preview_shows_everything_and_keeps_nothing(client, root):
    order("A1", internal_note="hush")
    text = page(client.post(ADD, {**FORM, "_preview": "1"}))
    assert "list_orders" in text
    # It stands below the form, where the button leads.
    assert 'formaction="#preview"' in text
    assert 'id="preview"' in text
    assert "<td>A1</td>" in text
    assert "hush" not in text
    assert 'value="status" checked' in text
    assert not ModelExposure.objects.exists()
    assert not LogEntry.objects.exists()
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    change = f"{LIST}{row.pk}/change/"
    text = page(client.post(change, {**FORM, "name": "sale", "_preview": "1", "_save": "1"}))
    assert "get_sale" in text
    row.refresh_from_db()
    assert row.name == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"paths-fields": []}, "Shown” for at least one field"),
        ({"paths-fields": ["number", "customer__password"]}, "is not one of the available choices"),
        ({"paths-search_fields": ["status", "note"]}, "Search: note is not shown"),
        ({"paths-fields": ["status"], "paths-filter_fields": []}, "number"),
        ({"operations": ["get", "drop"]}, "drop"),
        ({"operations": [], "uri": ""}, "Select at least one tool"),
        ({"uri": "shop://orders"}, "same for every order"),
        ({"uri": "shop://orders/{margin}"}, "margin"),
        ({"uri": "shop://orders/{status}"}, "several objects can share"),
        ({"page_size": "0"}, "page_size"),
        ({"page_size": "5000"}, "page_size"),
        ({"name": "Not a name"}, "Start with a lowercase letter"),
        ({"plural": "Not a name"}, "Start with a lowercase letter"),
        ({"scopes": '"'}, "not a valid scope"),
        ({"groups": ["gone"]}, "gone"),
        ({"operations": ["create"]}, "Select “Written” for the fields of orders"),
        (
            {"operations": ["create"], "paths-write_fields": ["number"]},
            "To create orders, select “Written” for customer, placed_at as well.",
        ),
        (
            {
                "paths-fields": ["status"],
                "paths-search_fields": [],
                "paths-ordering_fields": [],
                "ordering": "",
            },
            "Select “Shown” for a field that is unique, such as id",
        ),
    ],
    ids=repr,
)
def test_a_mistake_is_said_where_it_was_made(client, root, change, words):
    answer = client.post(ADD, {**FORM, **change})
    assert answer.status_code == 200
    assert words in page(answer).replace("&#x27;", "'")
    assert "errorlist" in page(answer)
    assert not ModelExposure.objects.exists()


def test_a_rejected_form_says_what_is_stored(client, root):
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    off = {name: value for name, value in FORM.items() if name != "is_enabled"}
    answer = client.post(f"{LIST}{row.pk}/change/", {**off, "page_size": "0"})
    assert answer.status_code == 200
    assert "errorlist" in page(answer)
    assert "This row is disabled" not in page(answer)
    assert ModelExposure.objects.get().is_enabled


def test_a_name_that_code_has_is_refused(client, root, server):
    class Own(ModelTools[Order]):
        fields = ["number"]

    server.register(Order, Own)
    text = page(client.post(ADD, FORM))
    assert "already has a tool named list_orders; choose another name." in text
    assert client.post(ADD, {**FORM, "name": "sale", "plural": "sales"}).status_code == 302
    text = page(client.post(ADD, {**FORM, "name": "sale", "plural": "sales"}))
    assert "already registered" in text


# Who may ------------------------------------------------------------------------------------------

ALL = ("view_modelexposure", "add_modelexposure", "change_modelexposure", "delete_modelexposure")


def test_staff_without_permission_gets_nowhere(client, root):
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    client.force_login(staff("view_order", "view_viewexposure", "add_viewexposure"))
    for path in (LIST, f"{LIST}add/", ADD, f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/delete/"):
        assert client.get(path).status_code == 403, path
        assert client.post(path, FORM).status_code == 403, path
    # Nor by the other kind, whose rows are in the same table.
    client.force_login(staff("change_viewexposure", "view_order", username="bob"))
    answer = client.get(f"/admin/mcp_django/viewexposure/{row.pk}/change/")
    assert answer.status_code == 302


def test_staff_with_one_permission_may_do_that(client, root):
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    change, delete = f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/delete/"
    order("A1")
    client.force_login(staff("view_modelexposure"))
    text = page(client.get(change))
    assert "page_size" in text
    assert "You may not see these rows." in text
    assert "<td>A1</td>" not in text
    assert '_save"' not in text
    assert '_preview"' not in text
    for post in (FORM, {**FORM, "_preview": "1"}):
        assert client.post(change, post).status_code == 403
    assert client.post(LIST, {"action": "disable", "_selected_action": [row.pk]}).status_code in (
        200,
        302,
    )
    row.refresh_from_db()
    assert row.is_enabled
    assert client.post(delete, {"post": "yes"}).status_code == 403
    client.force_login(staff("delete_modelexposure", username="bob"))
    assert client.post(delete, {"post": "yes"}).status_code == 302
    assert not ModelExposure.objects.exists()


def test_nobody_exposes_what_he_may_not_view_or_change_himself(client):
    client.force_login(staff(*ALL))
    assert 'value="shop.Order"' not in page(client.get(f"{LIST}add/"))
    assert client.post(ADD, FORM).status_code == 200
    client.force_login(staff(*ALL, "view_order", username="bob"))
    shown = {**FORM, "paths-fields": ["number", "status", "customer__name"]}
    assert "shop.view_customer" in page(client.post(ADD, shown))
    update = {**FORM, "operations": ["list", "update"]}
    assert "shop.change_order" in page(client.post(ADD, update))
    assert not ModelExposure.objects.exists()
    assert client.post(ADD, FORM).status_code == 302


def test_who_could_not_expose_it_may_switch_it_off_and_not_on(client, root):
    client.post(ADD, FORM)
    row = ModelExposure.objects.get()
    LogEntry.objects.all().delete()
    client.force_login(staff(*ALL))
    for action, is_on in (("disable", False), ("enable", False)):
        post = {"action": action, "_selected_action": [row.pk]}
        text = page(client.post(LIST, post, follow=True))
        row.refresh_from_db()
        assert row.is_enabled == is_on
    assert "shop.view_order" in text
    assert LogEntry.objects.count() == 1
    client.force_login(root)
    client.post(LIST, {"action": "enable", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.is_enabled


# Telling, and the list ----------------------------------------------------------------------------


def topic_version(kind: str) -> int:
    digest = TopicKey("desk", kind).digest
    versions = TopicRow.objects.filter(pk=digest).values_list("version", flat=True)
    return versions.first() or 0


def test_every_change_is_told_to_clients(client, root, django_capture_on_commit_callbacks):
    def after(path: str, post: dict[str, Any]) -> tuple[bool, bool]:
        before = topic_version("tools"), topic_version("resources")
        with django_capture_on_commit_callbacks(execute=True):
            assert client.post(path, post).status_code == 302
        return topic_version("tools") > before[0], topic_version("resources") > before[1]

    both = {**FORM, "uri": "shop://orders/{number}"}
    assert after(ADD, FORM) == (True, False)
    row = ModelExposure.objects.get()
    assert after(f"{LIST}{row.pk}/change/", both) == (True, True)
    assert after(f"{LIST}{row.pk}/change/", FORM) == (True, True)
    assert after(LIST, {"action": "disable", "_selected_action": [row.pk]}) == (True, False)
    assert after(LIST, {"action": "enable", "_selected_action": [row.pk]}) == (True, False)
    delete = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    assert after(LIST, delete) == (True, False)


def test_the_list_says_what_is_not_offered_and_why(client, root):
    client.post(ADD, FORM)
    ModelExposure.objects.create(server="desk", target="shop.Gone", options={})
    ModelExposure.objects.create(server="gone", target="shop.Order", options={})
    ModelExposure.objects.create(server="desk", target="shop.Tag", options=[3], groups="x")
    ModelExposure.objects.create(server="desk", target="shop.Tag", is_enabled=False)
    text = page(client.get(LIST)).replace("&#x27;", "'")
    for words in (
        ">Available<",
        "The site has no model 'shop.Gone'",
        "code has no server “gone”",
        "groups is not a list of names.",
        ">Switched off<",
    ):
        assert words in text
    for row in ModelExposure.objects.all():
        assert client.get(f"{LIST}{row.pk}/change/").status_code == 200


def test_a_field_that_is_gone_is_said_where_it_is_still_ticked(client, root):
    options = {"fields": ["number", "gone"], "operations": ["get"]}
    row = ModelExposure.objects.create(server="desk", target="shop.Order", options=options)
    change = f"{LIST}{row.pk}/change/"
    ticked = {"paths-fields": ["number", "gone"], "paths-filter_fields": [], "operations": ["get"]}
    answer = client.post(change, {**FORM, **ticked})
    assert "has 'gone', but Order has no field 'gone'" in page(answer).replace("&#x27;", "'")
    assert client.post(change, {**FORM, **ticked, "paths-fields": ["number"]}).status_code == 302


def test_the_screens_take_a_bounded_number_of_queries(client, root, django_assert_max_num_queries):
    for number in range(6):
        order(f"A{number}")
        assert client.post(ADD, {**FORM, "name": f"n{number}", "plural": f"n{number}s"})
    row = ModelExposure.objects.last()
    assert row is not None
    with django_assert_max_num_queries(9):
        client.get(LIST)
    with django_assert_max_num_queries(20):
        client.get(f"{LIST}{row.pk}/change/")
    with django_assert_max_num_queries(20):
        client.post(ADD, {**FORM, "_preview": "1", "name": "other", "plural": "others"})


def test_a_page_has_no_inline_script_or_style_and_says_what_each_input_is(client, root):
    text = page(client.get(ADD))
    assert "style=" not in text
    assert "<script>" not in text
    assert '<span class="mcp-visually-hidden">Filter: status</span>' in text
    assert '<th scope="col">Shown</th>' in text
