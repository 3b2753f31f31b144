"""`key=value`, parsed according to the schema of the argument."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

from tests.management.console import fails, run, server_of


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Point:
    x: float
    y: float


def everything(
    text: str = "",
    number: int = 0,
    amount: float = 0.0,
    yes: bool = False,
    day: date | None = None,
    many: list[int] | None = None,
    point: Point | None = None,
    size: Size = Size.SMALL,
    level: Literal[1, 2] = 1,
    either: int | str = 0,
    maybe: int | None = 7,
    words: str | None = "",
    anything: Any = None,
    data: bytes = b"",
) -> dict[str, Any]:
    """Say what came."""
    return {name: repr(value) for name, value in locals().items()}


def received(*pairs: str, server: Any = None) -> dict[str, str]:
    server = server or server_of(everything)
    answer = json.loads(run("call", "everything", *pairs, "--server", server.name, "--json").out)
    values: dict[str, str] = answer["result"]["structuredContent"]
    return values


VALUES = [
    ("text=two words", "'two words'"),
    ("text=", "''"),
    ("text=5", "'5'"),
    ("text=null", "'null'"),
    ("text=a=b:=c", "'a=b:=c'"),
    ('text:="5"', "'5'"),
    ("number=-5", "-5"),
    ("number:=5", "5"),
    ("amount=1.5", "1.5"),
    ("amount=2", "2.0"),
    ("amount=1e3", "1000.0"),
    ("yes=true", "True"),
    ("yes=Yes", "True"),
    ("yes=on", "True"),
    ("yes=1", "True"),
    ("yes=false", "False"),
    ("yes=no", "False"),
    ("yes:=true", "True"),
    ("day=2026-03-01", "datetime.date(2026, 3, 1)"),
    ("many=[1, 2]", "[1, 2]"),
    ('point={"x": 1, "y": 2}', "Point(x=1.0, y=2.0)"),
    ("size=l", "<Size.LARGE: 'l'>"),
    ("level=2", "2"),
    ("either=5", "5"),
    ("either=five", "'five'"),
    ("maybe=null", "None"),
    ("maybe=5", "5"),
    ("words=null", "'null'"),
    ("words:=null", "None"),
    ("anything=[1]", "[1]"),
    ("anything=no json", "'no json'"),
]


def test_a_value_has_the_type_of_its_argument():
    server = server_of(everything)
    for pair, value in VALUES:
        name = pair.partition("=")[0].removesuffix(":")
        assert received(pair, server=server)[name] == value, pair


MISTAKES = [
    ("number=five", "number: write an integer, not 'five'."),
    ("number=1.5", "number: write an integer, not '1.5'."),
    ("amount=NaN", "amount: write a number, not 'NaN'."),
    ("amount=true", "amount: write a number, not 'true'."),
    ("yes=maybe", "yes: write a boolean, not 'maybe'."),
    ("many=1,2", "many: write an array of integer, not '1,2'."),
    ("point=[]", "point: write an object, not '[]'."),
    ("size=m", "size: write one of s, l, not 'm'."),
    ("level=3", "level: write one of 1, 2, not '3'."),
    ("maybe=five", "maybe: write an integer or null, not 'five'."),
    ("number:=five", "number: 'five' is not valid JSON"),
    ("text=@/no/such/file", "text: /no/such/file cannot be read: No such file"),
    ("numbr=5", "No argument named 'numbr'. Did you mean number?"),
]


def test_a_value_that_does_not_fit_is_refused_before_the_call():
    server = server_of(everything)
    for pair, words in MISTAKES:
        assert words in fails("call", "everything", pair, "--server", server.name), pair


def test_a_value_is_read_from_a_file(tmp_path):
    text, numbers, data = (tmp_path / name for name in ("text", "numbers", "data"))
    text.write_text("ä\nb", encoding="utf-8")
    numbers.write_text("[1,\n2]\n")
    data.write_bytes(b"\xff\x00")
    values = received(f"text=@{text}", f"many=@{numbers}", f"data=@{data}")
    assert (values["text"], values["many"], values["data"]) == ("'ä\\nb'", "[1, 2]", r"b'\xff\x00'")
    server = server_of(everything)
    message = fails("call", "everything", f"text=@{data}", "--server", server.name)
    assert message == f"text: {data} is not text in UTF-8."


def test_bytes_without_a_file_are_given_in_base64():
    assert received(f"data={base64.b64encode(b'x').decode()}")["data"] == "b'x'"


def test_an_at_sign_is_given_as_json():
    assert received('text:="@home"')["text"] == "'@home'"


def test_names_that_no_schema_lists_are_passed_on():
    server = server_of()

    @server.tool(input_schema={"type": "object", "properties": {"x": {"type": "integer"}}})
    def tool(**given: Any) -> dict[str, Any]:
        """Say what came."""
        return given

    @server.tool(
        "numbers", input_schema={"type": "object", "additionalProperties": {"type": "number"}}
    )
    def numbers(**given: Any) -> dict[str, Any]:
        """Say what came."""
        return given

    where = ("--server", server.name)
    assert json.loads(run("call", "tool", "x=1", "y=two", *where).out) == {"x": 1, "y": "two"}
    assert json.loads(run("call", "numbers", "y=2.5", *where).out) == {"y": 2.5}
    assert "y: write a number" in fails("call", "numbers", "y=two", *where)
