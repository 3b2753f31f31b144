"""A thinned run still has every test, and each mount is asked something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.thinning import thin

MOUNTS = ("view", "lane", "raw", "consumer")


def item(name: str, **params: Any) -> Any:
    found = SimpleNamespace(nodeid=f"tests/test_it.py::{name}")
    if params:
        found.callspec = SimpleNamespace(params=params)
    return Item(found)


class Item:
    def __init__(self, values: SimpleNamespace) -> None:
        self.__dict__.update(values.__dict__)


def names(items: Any) -> list[str]:
    return [one.nodeid.partition("::")[2] for one in items]


def test_each_question_is_asked_at_one_mount() -> None:
    given = [
        item(f"test_{number}[{mount}-{size}]", mount=mount, size=size)
        for number in range(20)
        for mount in MOUNTS
        for size in (1, 2)
    ]
    kept, left_out = thin(given)
    assert {(name.partition("[")[0], name[-2]) for name in names(kept)} == {
        (f"test_{number}", str(size)) for number in range(20) for size in (1, 2)
    }
    assert len(kept) == 40
    assert {one.callspec.params["mount"] for one in kept} == {*MOUNTS}
    assert sorted(names(kept) + names(left_out)) == sorted(names(given))


def test_the_choice_depends_on_nothing_but_the_name() -> None:
    given = [item(f"test_it[{mount}]", streaming=mount) for mount in MOUNTS]
    assert names(thin(given)[0]) == names(thin(given[::-1])[0])


def test_what_has_no_mount_stays() -> None:
    given = [
        item("test_plain"),
        item("test_it[1-2]", size=1, other=2),
        item("test_it[2-2]", size=2, other=2),
        item("test_app[app0]", app=object()),
        item("test_app[app1]", app=object()),
        item("test_named[first]", mount="lane"),
        item("test_named[second]", mount="raw"),
    ]
    assert thin(given) == (given, [])
