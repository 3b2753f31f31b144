"""Resources, prompts, completion, skills and lists."""

from __future__ import annotations

from typing import Any

from tests.matrix.cases import OLD, WITH_STAFF, Case, get, read


def _complete(ref: dict[str, str], name: str, value: str, **options: Any) -> Case:
    params = {"ref": ref, "argument": {"name": name, "value": value}, **options}
    return Case(method="completion/complete", params=params)


def _listing(method: str, cursor: Any = None, **options: Any) -> Case:
    params = {} if cursor is None else {"cursor": cursor}
    return Case(method=method, params=params, **options)


def _next_page(method: str) -> Case:
    return Case(
        method=method,
        params=lambda first: {"cursor": first["result"].get("nextCursor", "none")},
        first=_listing(method, server="pages"),
        server="pages",
        callers=("anonymous", "member"),
    )


GUIDE = {"type": "ref/prompt", "name": "guide"}
ITEM = {"type": "ref/resource", "uri": "matrix://items/{name}"}
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
ITEM_URI = "matrix://items/apple"

RESOURCES = {
    "text": read("matrix://text"),
    "text from the loop": read("matrix://later"),
    "binary": read("matrix://binary"),
    "template": read(ITEM_URI),
    "template, missing": read("matrix://items/durian"),
    "template, invalid": read("matrix://numbers/seven"),
    "hidden": read("matrix://hidden", callers=WITH_STAFF),
    "absent": read("matrix://absent", callers=WITH_STAFF),
    "alias": read("matrix://former"),
    "bug": read("matrix://broken"),
    "invalid URI": read("not a URI"),
    "no URI": Case(method="resources/read", params={}),
    "skill": read("skill://greet-a-visitor/SKILL.md"),
    "file of a skill": read("skill://greet-a-visitor/references/words.md"),
    "absent file of a skill": read("skill://greet-a-visitor/references/absent.md"),
    "get a skill": Case(method="skills/get", params={"uri": "skill://greet-a-visitor/SKILL.md"}),
    "get an absent skill": Case(method="skills/get", params={"uri": "skill://absent/SKILL.md"}),
    "directory of a skill": Case(
        method="resources/directory/read", params={"uri": "skill://greet-a-visitor"}
    ),
    "subscribe": Case(method="resources/subscribe", params={"uri": "matrix://text"}),
    "subscribe to what is absent": Case(
        method="resources/subscribe", params={"uri": "matrix://absent"}
    ),
    "subscribe to what is hidden": Case(
        method="resources/subscribe", params={"uri": "matrix://hidden"}, callers=WITH_STAFF
    ),
    "unsubscribe": Case(
        method="resources/unsubscribe",
        params={"uri": "matrix://text"},
        first=Case(method="resources/subscribe", params={"uri": "matrix://text"}),
        revisions=OLD,
    ),
    "unsubscribe from what was not subscribed to": Case(
        method="resources/unsubscribe", params={"uri": "matrix://later"}
    ),
}

PROMPTS = {
    "function": get("guide", topic="art"),
    "function on the loop": get("guide_later", topic="art"),
    "template": get("briefing", topic="art"),
    "missing argument": get("guide"),
    "unknown argument": get("guide", topic="art", color="red"),
    "argument of a wrong type": get("guide", topic=5),
    "hidden": get("hidden", case={"callers": WITH_STAFF}),
    "absent": get("absent"),
    "no name": Case(method="prompts/get", params={}),
    "no arguments": Case(method="prompts/get", params={"name": "guide"}),
    "completion of a prompt": _complete(GUIDE, "topic", "a"),
    "completion with a context": _complete(
        GUIDE, "topic", "a", context={"arguments": {"tone": "cold"}}
    ),
    "completion of a template": _complete(ITEM, "name", "b"),
    "completion without suggestions": _complete(GUIDE, "tone", "w"),
    "completion of an absent prompt": _complete({**GUIDE, "name": "absent"}, "topic", ""),
    "completion of a hidden prompt": _complete({**GUIDE, "name": "hidden"}, "topic", ""),
    "completion of an absent template": _complete({**ITEM, "uri": "matrix://no/{x}"}, "x", ""),
    "completion of an absent argument": _complete(GUIDE, "absent", ""),
    "completion of something else": _complete({"type": "ref/tool", "name": "add"}, "a", ""),
}

CATALOG = {
    "tools/list": _listing("tools/list"),
    # The list is long, so that its differences by permission are recorded at two revisions only.
    "tools/list as staff": _listing(
        "tools/list", callers=("staff",), revisions=("2026-07-28", "2025-03-26")
    ),
    **{method: _listing(method, callers=WITH_STAFF) for method in LISTS[1:]},
    "skills/list": _listing("skills/list"),
    **{f"{method}, bad cursor": _listing(method, "bad") for method in LISTS},
    "tools/list, cursor is a number": _listing("tools/list", 5),
    **{
        f"{method}, first page": _listing(method, server="pages", callers=("anonymous", "member"))
        for method in LISTS
    },
    # The other lists fit on one page.
    "resources/list, next page": _next_page("resources/list"),
    "cursor of another list": Case(
        method="prompts/list",
        params=lambda first: {"cursor": first["result"]["nextCursor"]},
        first=_listing("resources/list", server="pages"),
        server="pages",
        callers=("anonymous",),
    ),
    **{
        f"{method}, bare server": _listing(method, server="bare", callers=("anonymous",))
        for method in LISTS
    },
    "call, bare server": Case(
        method="tools/call",
        params={"name": "add", "arguments": {}},
        server="bare",
        callers=("anonymous", "member"),
    ),
    "read, bare server": read("matrix://text", server="bare", callers=("anonymous",)),
    "prompt, bare server": Case(
        method="prompts/get", params={"name": "guide"}, server="bare", callers=("anonymous",)
    ),
    "server/discover, bare server": Case(
        method="server/discover", server="bare", callers=("anonymous",)
    ),
}
