"""URIs and templates for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from mcp_django.protocol.uritemplate import MAX_URI_LENGTH, URITemplate, check_uri
from tests.spec import spec


@spec("RSC-6")
@pytest.mark.parametrize(
    "uri",
    [
        "shop://orders/1",
        "shop:",
        "urn:isbn:0451450523",
        "file:///etc/passwd",
        "https://ann@shop.example:8080/a/b;c=1?x=1&y=%20#top",
        "http://[::1]:80/",
        "http://[v1.a:b]/",
        "x+y-z.1://a",
        "data:,a%20b",
        "mailto:a@b",
        "shop://x?a/b?c",
        "shop://",
        "shop:/a",
        "x://" + "a" * (MAX_URI_LENGTH - 4),
    ],
)
def test_a_uri_of_the_standard_passes(uri):
    check_uri(uri)


@spec("RSC-6")
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "orders/1",
        "/orders",
        "//shop/x",
        ":x",
        "1x://a",
        "shop://a b",
        "shop://a\n",
        "shop://a\0",
        "shop://ü",
        "shop://a/%",
        "shop://a/%2",
        "shop://a/%zz",
        "shop://a/{b}",
        "shop://a/<b>",
        'shop://a/"',
        "shop://a\\b",
        "shop://a/[b]",
        "shop://a#b#c",
        "http://a@b@c/",
        "http://[::1/",
        "http://a:80x/",
        "x://" + "a" * MAX_URI_LENGTH,
        "x://" + "a" * 100_000,
    ],
)
def test_another_text_is_refused_as_a_uri(uri):
    with pytest.raises(ValueError, match="URI") as caught:
        check_uri(uri)
    assert len(str(caught.value)) < 250


@given(st.text(), st.text("/?#[]@:%ab", max_size=30))
def test_no_text_makes_checking_a_uri_fail_otherwise(text, odd):
    for uri in (text, "x:" + odd, "x://" + odd):
        try:
            check_uri(uri)
        except ValueError:
            continue
        assert uri.isascii()


@spec("RSC-7", "RSC-12")
@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("shop://orders/{n}", "shop://orders/1", {"n": "1"}),
        ("shop://orders/{n}", "shop://orders/a%20b", {"n": "a b"}),
        ("shop://orders/{n}", "shop://orders/%2541", {"n": "%41"}),
        ("shop://orders/{n}", "shop://orders/%C3%BC", {"n": "ü"}),
        ("shop://orders/{n}", "shop://orders/ü", {"n": "ü"}),
        ("shop://orders/{n}", "shop://orders/a+b", {"n": "a+b"}),
        ("shop://orders/{n}", "shop://orders/...", {"n": "..."}),
        ("shop://orders/{n}/lines", "shop://orders/1/lines", {"n": "1"}),
        ("shop://{a}/{b}", "shop://x/y", {"a": "x", "b": "y"}),
        ("shop://{a}-{b}.txt", "shop://x-y-z.txt", {"a": "x", "b": "y-z"}),
        ("shop://{a}.tar.gz", "shop://x.tar.gz.tar.gz", {"a": "x.tar.gz"}),
        ("shop://{a}-{b}", "shop://--x", {"a": "-", "b": "x"}),
        ("docs://{+path}", "docs://a/b/c", {"path": "a/b/c"}),
        ("docs://{+path}", "docs://a//b", {"path": "a//b"}),
        ("docs://{+path}", "docs://c:d/e", {"path": "c:d/e"}),
        ("docs://{+path}", "docs://https://x/?y#z", {"path": "https://x/?y#z"}),
        ("docs://{+path}/raw", "docs://a/raw/raw", {"path": "a/raw"}),
        (
            "docs://{a}/x/{+path}/x/{b}",
            "docs://1/x/2/x/3/x/4",
            {"a": "1", "path": "2/x/3", "b": "4"},
        ),
        ("docs://{+path}/v/{a}-{b}", "docs://1/v/2-3-4", {"path": "1", "a": "2-3", "b": "4"}),
        ("shop://find{?q,n}", "shop://find", {}),
        ("shop://find{?q,n}", "shop://find?", {}),
        ("shop://find{?q,n}", "shop://find?n=2&q=a%20b", {"n": "2", "q": "a b"}),
        ("shop://find{?q,n}", "shop://find?q=&&n", {"q": "", "n": ""}),
        ("shop://find{?q}", "shop://find?q=a+b=c", {"q": "a+b=c"}),
        ("shop://{a}{?q}", "shop://x?q=y", {"a": "x", "q": "y"}),
        ("docs://{+path}{?q}", "docs://a/b?q=c/d", {"path": "a/b", "q": "c/d"}),
        ("shop://fixed", "shop://fixed", {}),
        ("file:///srv/{+path}", "file:///srv/a/b.txt", {"path": "a/b.txt"}),
        ("file:///srv/{+path}", "file:///srv/a%20b/.hidden", {"path": "a b/.hidden"}),
        ("file://{+path}", "file:///srv/a", {"path": "/srv/a"}),
        ("http://x/?q={q}", "http://x/?q=1", {"q": "1"}),
    ],
)
def test_a_uri_of_the_template_gives_its_values(template, uri, values):
    assert URITemplate(template).match(uri) == values


@spec("RSC-12")
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("shop://orders/{n}", "shop://orders/"),
        ("shop://orders/{n}", "shop://orders"),
        ("shop://orders/{n}", "shop://orders/1/2"),
        ("shop://orders/{n}", "shop://orders/1?x=1"),
        ("shop://orders/{n}", "shop://orders/1#x"),
        ("shop://orders/{n}", "SHOP://Orders/1"),
        ("shop://orders/{n}", " shop://orders/1"),
        ("shop://orders/{n}", ""),
        ("shop://orders/{n}", "shop://orders/%00"),
        ("shop://orders/{n}", "shop://orders/a\0b"),
        ("shop://orders/{n}", "shop://orders/%ff"),
        ("shop://orders/{n}", "shop://orders/%C3"),
        ("shop://orders/%C3{n}", "shop://orders/%C3%BC"),
        ("shop://orders/{n}", "shop://orders/" + "1" * MAX_URI_LENGTH),
        ("shop://orders/{n}/lines", "shop://orders/lines"),
        ("shop://orders/{n}/lines", "shop://orders//lines"),
        ("shop://a{n}a", "shop://a"),
        ("shop://{a}-{b}", "shop://x"),
        ("shop://{a}-{b}", "shop://x-"),
        ("docs://{+path}", "docs://"),
        ("docs://{+path}/v/{a}", "docs://1/v/"),
        ("docs://{+path}/v/{a}", "docs:///v/1"),
        ("docs://{+path}/v/{a}", "docs://1/w/2"),
        ("docs://{+path}-{a}", "docs://"),
        ("shop://find{?q}", "shop://find?other=1"),
        ("shop://find{?q}", "shop://find?q=1&q=2"),
        ("shop://find{?q}", "shop://find?q=%ff"),
        ("shop://find{?q}", "shop://find?q=%00"),
        ("shop://find{?q}", "shop://find?q=1#x"),
        ("shop://find{?q}", "shop://find/x"),
        ("shop://fixed", "shop://fixed/x"),
        ("shop://fixed", "shop://fix"),
    ],
)
def test_another_uri_does_not_match(template, uri):
    assert URITemplate(template).match(uri) is None


@spec("RSC-6")
@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "a/../../etc/passwd",
        "a/..",
        "..",
        "%2e%2e/etc/passwd",
        "%2E%2E%2Fetc%2Fpasswd",
        "..%2fetc%2fpasswd",
        "..%5cetc",
        "a\\..\\b",
        "a%5cb",
        "%252e%252e%252fetc",
        "%252e%252e/etc",
        "a/%25252e%25252e/b",
        "a%252fb",
        "a%255cb",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        ".. /a",
        "a%00.txt",
    ],
)
@pytest.mark.parametrize("scheme", ["file", "FILE"])
def test_a_path_that_could_leave_its_directory_does_not_match(scheme, path):
    assert URITemplate(scheme + ":///srv/{+path}").match(f"{scheme}:///srv/{path}") is None


@spec("RSC-6")
@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2fx", "a%2fb", "a%5cb", "%252e%252e"])
def test_a_file_name_is_one_segment(name):
    assert URITemplate("file:///srv/{name}").match(f"file:///srv/{name}") is None
    assert URITemplate("file:///srv/{name}").match("file:///srv/a.b") == {"name": "a.b"}


@spec("RSC-6")
@pytest.mark.parametrize("value", ["..", "../x", "a/../b", "%2e%2e", "%2e%2e%2fx", "a%5c..%5cb"])
def test_two_dots_are_no_segment_in_any_scheme(value):
    assert URITemplate("docs://{+path}").match(f"docs://{value}") is None
    assert URITemplate("docs://{name}").match(f"docs://{value}") is None
    assert URITemplate("docs://v-{+path}").match(f"docs://v-{value}") is None


@spec("RSC-6")
@pytest.mark.parametrize("value", ["a%2Fb", "%2Fetc", "a%5Cb", "a\\b", "C:%5Cx", "C:%2Fx"])
def test_what_a_folder_is_joined_with_is_one_segment_in_any_scheme(value):
    assert URITemplate("docs://{name}").match(f"docs://{value}") is None
    assert URITemplate("docs://x/{name}.txt").match(f"docs://x/{value}.txt") is None


@spec("RSC-6")
@pytest.mark.parametrize("value", ["/etc", "%2Fetc", "//etc", "%5Cetc", "\\etc", "C:/x", "c:%5Cx"])
def test_no_path_is_absolute_in_any_scheme(value):
    assert URITemplate("docs://{+path}").match(f"docs://{value}") is None
    assert URITemplate("docs://x/{+path}/raw").match(f"docs://x/{value}/raw") is None


def test_what_is_looked_up_may_hold_slashes():
    template = URITemplate("shop://orders/{n}", is_lookup=True)
    assert template.match("shop://orders/2026%2F17") == {"n": "2026/17"}
    assert template.expand({"n": "/a\\b"}) == "shop://orders/%2Fa%5Cb"
    assert template.match("shop://orders/..%2Fa") is None
    assert template.match("shop://orders/2026/17") is None
    in_files = URITemplate("file:///orders/{n}", is_lookup=True)
    assert in_files.match("file:///orders/2026%2F17") is None


@spec("RSC-6")
@pytest.mark.parametrize("uri", ["file:///srv/..", "file:///srv/.%2e"])
def test_two_dots_cannot_be_put_together(uri):
    assert URITemplate("file:///srv/.{name}").match(uri) is None
    assert URITemplate("file:///srv/.{name}").match("file:///srv/.profile") == {"name": "profile"}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("shop://{}", r"\{\} is not supported"),
        ("shop://{a,b}", r"\{a,b\} is not supported"),
        ("shop://{a*}", r"\{a\*\} is not supported"),
        ("shop://{a:3}", r"\{a:3\} is not supported"),
        ("shop://{/a}", r"\{/a\} is not supported"),
        ("shop://{#a}", r"\{#a\} is not supported"),
        ("shop://{.a}", r"\{\.a\} is not supported"),
        ("shop://{;a}", r"\{;a\} is not supported"),
        ("shop://x{&a}", r"\{&a\} is not supported"),
        ("shop://x{?a}/y", r"\{\?a\} is not supported"),
        ("shop://x{?}", r"\{\?\} is not supported"),
        ("shop://x{?a,}", r"\{\?a,\} is not supported"),
        ("shop://x{?a*}", r"\{\?a\*\} is not supported"),
        ("shop://{a b}", r"\{a b\} is not supported"),
        ("shop://{1a}", r"\{1a\} is not supported"),
        ("shop://{a.b}", r"\{a\.b\} is not supported"),
        ("shop://{a", "percent-encoded"),
        ("shop://a}", "percent-encoded"),
        ("shop://{{a}}", "percent-encoded"),
        ("shop://a b", "percent-encoded"),
        ("shop://ü", "percent-encoded"),
        ("shop://%zz", "percent-encoded"),
        ("shop://{a}/{a}", "more than once"),
        ("shop://{a}{?a}", "more than once"),
        ("{a}", "scheme"),
        ("orders/{a}", "scheme"),
        ("{scheme}://x", "scheme"),
        ("", "scheme"),
        ("shop://{a}{b}", "between"),
        ("shop://{+a}/{+b}", "only one"),
        ("shop://x?y=1{?a}", "cannot follow"),
        ("shop://x#y{?a}", "cannot follow"),
        ("shop://" + "{" * 10_000, "percent-encoded"),
        ("shop://{" + "a-" * 10_000 + "}", "is not supported"),
    ],
)
def test_a_template_that_is_not_supported_is_refused_by_name(template, message):
    with pytest.raises(ValueError, match=message) as caught:
        URITemplate(template)
    assert len(str(caught.value)) < 300


def test_a_template_knows_its_text_and_variables():
    template = URITemplate("shop://{b}/{+a}{?d,c}")
    assert template.template == "shop://{b}/{+a}{?d,c}"
    assert template.variables == ("b", "a", "d", "c")
    assert repr(template) == "URITemplate('shop://{b}/{+a}{?d,c}')"
    assert URITemplate("shop://fixed").variables == ()


@spec("RSC-12")
def test_the_more_specific_template_is_greater():
    ranked = [
        "docs://{+path}",
        "docs://{a}",
        "docs://{a}/{b}",
        "docs://guide/{+path}",
        "docs://guide/{a}{?x}",
        "docs://guide/{a}",
        "docs://guide/{a}/raw",
    ]
    for less, more in pairwise(ranked):
        assert URITemplate(less).specificity < URITemplate(more).specificity


@spec("RSC-7")
@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("shop://orders/{n}", {"n": "a b ü?"}, "shop://orders/a%20b%20%C3%BC%3F"),
        ("shop://orders/{n}", {"n": "%41"}, "shop://orders/%2541"),
        ("docs://{+path}", {"path": "a/b c;d?e#f"}, "docs://a/b%20c;d%3Fe%23f"),
        ("docs://{+path}", {"path": "a:b@c"}, "docs://a%3Ab%40c"),
        ("shop://find{?q,n}", {"n": "1&2"}, "shop://find?n=1%262"),
        ("shop://find{?q,n}", {"q": "", "other": "x"}, "shop://find?q="),
        ("shop://fixed", {}, "shop://fixed"),
    ],
)
def test_expanding_encodes_what_a_uri_cannot_hold(template, values, uri):
    assert URITemplate(template).expand(values) == uri
    check_uri(uri)


@pytest.mark.parametrize(
    ("template", "values", "message"),
    [
        ("shop://{n}", {}, "n is missing or empty"),
        ("shop://{n}", {"n": ""}, "n is missing or empty"),
        ("shop://{n}", {"n": "a\0"}, "would not return"),
        ("shop://{a}-{b}", {"a": "1-2", "b": "3"}, "would not return"),
        ("shop://{n}", {"n": "x" * MAX_URI_LENGTH}, "would not return"),
        ("shop://{n}", {"n": "a/b"}, "would not return"),
        ("shop://{+path}", {"path": "/a"}, "would not return"),
        ("file:///srv/{+path}", {"path": "../x"}, "would not return"),
        ("file:///srv/{+path}", {"path": "/x"}, "would not return"),
    ],
)
def test_values_that_would_not_come_back_are_refused(template, values, message):
    with pytest.raises(ValueError, match=message) as caught:
        URITemplate(template).expand(values)
    assert len(str(caught.value)) < 300


TEMPLATES = st.sampled_from(
    [
        "shop://orders/{a}",
        "shop://{a}/{b}",
        "shop://{a}-{b}/x",
        "docs:{+a}",
        "docs://{+a}",
        "docs://{+a}/raw/{b}",
        "docs://{b}/{+a}{?c}",
        "file:///srv/{+a}",
        "file:///srv/{a}",
        "shop://find{?a,b,c}",
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
AWKWARD = st.text("./\\%2eEfF5cC-?#&=:@[]\0 ü", max_size=12)
VALUES = st.fixed_dictionaries({"a": TEXT | AWKWARD, "b": TEXT | AWKWARD, "c": TEXT | AWKWARD})


@spec("RSC-7", "RSC-12")
@given(TEMPLATES, VALUES)
def test_expanding_and_matching_are_inverse(template, values):
    parsed = URITemplate(template)
    wanted = {name: values[name] for name in parsed.variables}
    try:
        uri = parsed.expand(wanted)
    except ValueError:
        return
    check_uri(uri)
    assert parsed.match(uri) == wanted


@given(st.from_regex(r"[A-Za-z0-9 ü_.~%]{1,10}", fullmatch=True))
def test_an_ordinary_value_can_always_be_expanded(value):
    assume(value.strip() != "..")
    for template in ("shop://orders/{a}", "docs://x/{+a}", "shop://find{?a}"):
        parsed = URITemplate(template)
        assert parsed.match(parsed.expand({"a": value})) == {"a": value}


@spec("RSC-6")
@given(TEMPLATES, st.text() | AWKWARD)
def test_no_uri_makes_matching_fail_or_leave_its_directory(template, rest):
    prefix = template.partition("{")[0]
    for uri in (rest, prefix + rest):
        values: Any = URITemplate(template).match(uri)
        for variable in ("a", "b") if values is not None and "{?a" not in template else ():
            value = values.get(variable, "")
            assert ".." not in value.replace("\\", "/").split("/")
            assert not value.startswith(("/", "\\"))
            if f"{{{variable}}}" in template:
                assert not {"/", "\\"} & set(value)
            if template.startswith("file:"):
                assert "\\" not in value


def test_matching_does_not_backtrack():
    template = URITemplate("x://" + "-".join(f"{{v{i}}}" for i in range(30)) + "!")
    # A backtracking matcher would not come back before the test times out.
    assert template.match("x://" + "-" * (MAX_URI_LENGTH - 4)) is None
