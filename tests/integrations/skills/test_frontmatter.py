"""The frontmatter of a SKILL.md, read as hosts read it."""

from __future__ import annotations

import pytest

from mcp_django.integrations.skills import MAX_CHARACTERS, parse_frontmatter
from mcp_django.integrations.yaml_core import SkillError, parse_yaml
from tests.spec import spec


@spec("SKL-2")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("True", True),
        ("2026-01-31", "2026-01-31"),
        ("12:30:00", "12:30:00"),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("-1.5e3", -1500.0),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ('"1"', "1"),
        ("! 1", "1"),
        ("=", "="),
        ("[a, {b: [1, .5]}]", ["a", {"b": [1, 0.5]}]),
        ("|\n  two\n  lines", "two\nlines\n"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    scalar = parse_yaml(f"x: {text}\n")["x"]
    assert (scalar, type(scalar)) == (value, type(value))


def test_a_merge_key_is_a_key():
    assert parse_yaml("<<: {a: 1}") == {"<<": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x", "line 2: anchors"),
        ("a: 1\na: 2", "line 3: the key 'a' occurs twice"),
        ("1: a", "put the key in quotes"),
        ("a: !!python/object:os.system x", "tags"),
        ("a: .inf", "not a number in JSON"),
        ("a: 9007199254740993", "too large"),
        ("a: " + "9" * 5000, "too large"),
        ("a: 1e999", "too large"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested more than 20"),
        ("a: b: c", "line 2: mapping values are not allowed here; put"),
        ("a: [", "line 2"),
        ("a: \x07", "special characters"),
        ('a: "\\ud800"', "line 2: half of a surrogate pair"),
        ('"\\udfff": a', "line 2: half of a surrogate pair"),
        ('a: "\\U00110000"', "not a valid character"),
        ('a: "\\UFFFFFFFF"', "not a valid character"),
        ("a: 1\n--- \nb: 2", "second YAML document"),
    ],
)
def test_what_hosts_read_differently_is_refused(text, words):
    with pytest.raises(SkillError) as caught:
        parse_yaml(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def md(**fields: str) -> str:
    lines = [f"{name}: {value}" for name, value in {"name": "a", "description": "d"}.items()]
    return "\n".join(["---", *lines, *(f"{n}: {v}" for n, v in fields.items()), "---", "Body"])


def test_line_ends_a_mark_and_spaces_do_not_matter():
    for text in (md(), md().replace("\n", "\r\n"), "\ufeff" + md(), md().replace("---", "--- ")):
        assert parse_frontmatter(text) == {"name": "a", "description": "d"}


def test_what_the_specification_does_not_know_passes_through():
    text = md(**{"allowed-tools": "Read Bash(git:*)", "x": "{y: [1]}"})
    assert parse_frontmatter(text)["allowed-tools"] == "Read Bash(git:*)"
    assert parse_frontmatter(text)["x"] == {"y": [1]}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"license": "[MIT]"}, "license"),
        ({"compatibility": '""'}, "compatibility"),
        ({"compatibility": "x" * 501}, "compatibility"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": "{io.modelcontextprotocol/x: 1}"}, "metadata"),
    ],
)
def test_a_wrong_field_is_named(fields, field):
    with pytest.raises(SkillError) as caught:
        parse_frontmatter(md(**fields))
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Title",
        "---\nname: a\n",
        " ---\nname: a\n---\n",
        "---\n[a]\n---\n",
        "---\nx: " + "y" * 2 * MAX_CHARACTERS + "\n---\n",
    ],
)
def test_what_is_no_frontmatter_is_refused(text):
    with pytest.raises(SkillError, match="---"):
        parse_frontmatter(text)


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a-", "a--b", "a" * 65, "ä", "a/b", '"a\\n"'])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(SkillError) as caught:
        parse_frontmatter(f"---\nname: {name}\ndescription: d\n---\n")
    assert caught.value.field == "name"
