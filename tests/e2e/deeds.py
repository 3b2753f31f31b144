"""Actions in the admin, step by step as a person does them."""

from __future__ import annotations

from tests.e2e.visitor import Visitor

ADMIN = "/admin/mcp_django"


def save(visitor: Visitor) -> None:
    """Save the form, and wait for the message of success."""
    visitor.page.locator("input[name=_save]").click()
    visitor.page.locator(".messagelist .success").wait_for()


def switch(visitor: Visitor, name: str, *, on: bool) -> None:
    """Enable or disable one component in the list."""
    visitor.open(f"{ADMIN}/component/?q={name}")
    box = visitor.page.locator("input[name=form-0-is_enabled]")
    assert box.is_checked() is not on
    box.set_checked(on)
    save(visitor)


def override(visitor: Visitor, name: str, **choices: str) -> None:
    """Choose options on the page of a component of the staff server."""
    visitor.open(f"{ADMIN}/component/?server=staff&q={name}")
    visitor.page.get_by_role("link", name=name, exact=True).click()
    for field, choice in choices.items():
        visitor.page.select_option(f"select[name={field}]", label=choice)
    save(visitor)


def write_prompt(visitor: Visitor, name: str, text: str, *arguments: str) -> None:
    """Write a prompt of the default server whose arguments are all required."""
    visitor.open(f"{ADMIN}/prompttext/add/")
    visitor.page.select_option("select[name=server]", "default")
    visitor.page.fill("input[name=name]", name)
    for number, argument in enumerate(arguments):
        visitor.page.fill(f"input[name=arguments-{number}-name]", argument)
        visitor.page.check(f"input[name=arguments-{number}-required]")
    visitor.page.fill("textarea[name=text]", text)
    save(visitor)


def expose(visitor: Visitor, model: str, name: str, *fields: str) -> None:
    """Expose these fields of a model on the default server, to list and get."""
    visitor.open(f"{ADMIN}/modelexposure/add/")
    visitor.page.select_option("select[name=server]", "default")
    visitor.page.select_option("select[name=target]", model)
    visitor.press("Continue")
    visitor.page.fill("input[name=name]", name)
    visitor.page.fill("input[name=plural]", f"{name}s")
    for field in fields:
        visitor.page.check(f"input[name=paths-fields][value={field}]")
    save(visitor)


def open_page(visitor: Visitor, server: str, title: str) -> None:
    """Go to one of the pages of a server."""
    visitor.open(f"{ADMIN}/server/")
    visitor.page.locator("#result_list").get_by_role("link", name=server, exact=True).click()
    visitor.page.get_by_role("link", name=title, exact=True).click()


def open_trial(visitor: Visitor, server: str, component: str) -> None:
    """Go to the form that runs a component."""
    open_page(visitor, server, "Try it")
    visitor.page.locator(f"a[href*='key={component}']").first.click()


def open_approval(visitor: Visitor, tool: str) -> None:
    """Go to the page that decides on the waiting call of a tool."""
    visitor.open(f"{ADMIN}/approval/")
    row = visitor.page.locator("#result_list tbody tr", has_text=tool).first
    row.locator("th a").click()
    visitor.page.locator("a[href$='/decide/']").click()


def decide(visitor: Visitor, tool: str, decision: str) -> None:
    """Approve or reject the waiting call of a tool."""
    open_approval(visitor, tool)
    visitor.press(decision)
    visitor.page.locator(".messagelist .success").wait_for()
