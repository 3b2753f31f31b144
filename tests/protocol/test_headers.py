"""Routing headers and arguments that are repeated in headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.errors import HeaderMismatch
from mcp_django.protocol.headers import (
    MAX_SAFE_INTEGER,
    HeaderParameter,
    Headers,
    check_param_headers,
    check_routing_headers,
    decode_value,
    encode_value,
    header_parameters,
)
from tests.spec import spec

ROUTING = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "refund"}


def headers_of(*pairs: tuple[str, str], **changes: str | None) -> Headers:
    lines = {**ROUTING, **{name.replace("_", "-"): value for name, value in changes.items()}}
    kept = [(name, value) for name, value in lines.items() if value is not None]
    return Headers((n.encode("latin-1"), v.encode("latin-1")) for n, v in [*kept, *pairs])


def check(headers: Headers, name: str | None = "refund") -> None:
    check_routing_headers(headers, version="2026-07-28", method="tools/call", name=name)


@spec("HDR-6")
def test_names_are_found_in_any_case_and_values_are_trimmed():
    headers = Headers([(b"MCP-Method", b" \ttools/call\t "), (b"X-Empty", b"")])
    assert headers.get("mcp-method") == headers.get("Mcp-Method") == "tools/call"
    assert "MCP-METHOD" in headers
    assert headers.get("x-empty") == ""
    assert headers.get("x-absent") is None
    assert "x-absent" not in headers


@spec("HDR-9")
def test_every_line_of_a_header_is_kept():
    headers = Headers([(b"A", b"1"), (b"a", b"2"), (b"b", b"3")])
    assert headers.getlist("a") == ["1", "2"]
    assert headers.get("a") == "1"
    assert headers.getlist("c") == []


@spec("HDR-9")
def test_an_underscore_is_not_a_dash():
    headers = Headers([(b"mcp_method", b"tools/list")])
    assert "mcp-method" not in headers
    with pytest.raises(HeaderMismatch):
        check(headers)


def test_a_wsgi_environment_is_read_by_its_names():
    headers = Headers.from_environ(
        {
            "HTTP_MCP_METHOD": " tools/call ",
            "HTTP_X_UMLAUT": "\xfc",
            "HTTP_X_WIDE": "\u2192",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": "",
            "REQUEST_METHOD": "POST",
            "wsgi.input": object(),
        }
    )
    assert headers.get("Mcp-Method") == "tools/call"
    assert headers.get("content-type") == "application/json"
    assert headers.get("x-umlaut") == "\xfc"
    assert headers.get("x-wide") == "?"
    assert "content-length" not in headers
    assert "request-method" not in headers


@spec("HDR-2", "HDR-3", "HDR-4", "HDR-6")
def test_headers_that_agree_with_the_body_pass():
    check(headers_of())
    check(headers_of(mcp_name="  refund  "))
    check(headers_of(mcp_name="=?base64?cmVmdW5k?="))


@spec("HDR-2", "HDR-3", "HDR-4", "HDR-5", "HDR-8")
@pytest.mark.parametrize("header", ["mcp_protocol_version", "mcp_method", "mcp_name"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "other",
        "TOOLS/CALL",
        "Refund",
        "2026-07-28, 2025-11-25",
        "tools\x7f",
        "\xfc",
        "a\0b",
    ],
)
def test_a_routing_header_that_is_missing_or_different_is_a_mismatch(header, value):
    with pytest.raises(HeaderMismatch) as caught:
        check(headers_of(**{header: value}))
    assert (caught.value.code, caught.value.http_status) == (-32020, 400)


@spec("HDR-9")
@pytest.mark.parametrize("header", ["mcp-method", "mcp-name"])
def test_a_repeated_routing_header_is_a_mismatch_even_if_equal(header):
    with pytest.raises(HeaderMismatch, match="repeated"):
        check(headers_of((header, ROUTING[header])))


@spec("HDR-9")
def test_the_version_may_be_repeated_if_it_is_the_same():
    version = ROUTING["mcp-protocol-version"]
    check(headers_of(("mcp-protocol-version", version)))
    check(headers_of(mcp_protocol_version=f"{version},{version} , {version}"))
    twice = headers_of(("mcp-protocol-version", "2025-06-18"))
    for headers in (twice, headers_of(mcp_protocol_version=f"{version}, 2025-06-18")):
        with pytest.raises(HeaderMismatch, match=f"{version}.*2025-06-18"):
            check(headers)


@spec("HDR-4", "HDR-11")
def test_the_name_is_not_looked_at_where_the_body_names_nothing():
    check(headers_of(mcp_name=None), name=None)
    check(headers_of(mcp_name="anything"), name=None)


@spec("HDR-8")
def test_a_header_outside_printable_ascii_is_a_mismatch_even_if_the_body_says_the_same():
    headers = headers_of(mcp_method="m\xfc")
    with pytest.raises(HeaderMismatch, match="printable"):
        check_routing_headers(headers, version="2026-07-28", method="m\xfc", name=None)


def test_a_mismatch_does_not_repeat_megabytes():
    with pytest.raises(HeaderMismatch) as caught:
        check(headers_of(mcp_method="x" * 100_000))
    assert len(caught.value.message) < 250


@spec("HDR-7")
@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("plain", "plain"),
        ("", ""),
        ("two words\tand a tab", "two words\tand a tab"),
        ("shop://orders/1?a=b%20c", "shop://orders/1?a=b%20c"),
        ("ü", "=?base64?w7w=?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line\nbreak", "=?base64?bGluZQpicmVhaw==?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
        ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("=?base64?eA==", "=?base64?eA=="),
        ("=?base64?=", "=?base64?="),
        ("eA==?=", "eA==?="),
    ],
)
def test_a_value_is_written_as_it_is_or_in_base64(text, header):
    assert encode_value(text) == header
    assert decode_value(header) == text


@spec("HDR-7")
@pytest.mark.parametrize(
    "header",
    [
        "=?base64?x?=",
        "=?base64?eA?=",
        "=?base64?eA=?=",
        "=?base64?eA===?=",
        "=?base64?=eA=?=",
        "=?base64?e A==?=",
        "=?base64?e-_=?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
    ],
)
def test_broken_base64_is_a_mismatch(header):
    with pytest.raises(HeaderMismatch, match="Base64"):
        decode_value(header)


@spec("HDR-7")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_survives_a_header(text):
    header = encode_value(text)
    assert header.isascii()
    assert header == header.strip(" \t")
    assert decode_value(header) == text
    assert Headers([(b"mcp-name", header.encode())]).get("mcp-name") == header


@spec("HDR-5")
@given(st.binary(max_size=60), st.sampled_from([*ROUTING]))
def test_any_bytes_in_a_header_pass_or_are_a_mismatch(value, header):
    pairs = [(n.encode(), value if n == header else v.encode()) for n, v in ROUTING.items()]
    try:
        check(Headers(pairs))
    except HeaderMismatch:
        return
    assert decode_value(value.decode("latin-1").strip(" \t")) == ROUTING[header]


def schema_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def mirrored(type_: str = "string", header: Any = "Region") -> dict[str, Any]:
    return {"type": type_, "x-mcp-header": header}


@spec("HDR-12", "HDR-13")
def test_annotated_properties_are_found_along_properties_only():
    schema = schema_of(
        region=mirrored(),
        plain={"type": "string"},
        anything=True,
        where={
            "type": "object",
            "properties": {"zone": mirrored("integer", "Zone"), "x": mirrored("boolean", "X-1!")},
        },
    )
    assert header_parameters(schema) == (
        HeaderParameter(header="Region", path=("region",), type="string"),
        HeaderParameter(header="Zone", path=("where", "zone"), type="integer"),
        HeaderParameter(header="X-1!", path=("where", "x"), type="boolean"),
    )


def test_a_schema_without_annotations_has_no_header_parameters():
    assert header_parameters({"type": "object"}) == ()
    assert header_parameters(schema_of(a={"type": "array", "items": {"type": "string"}})) == ()


def test_data_that_looks_like_an_annotation_is_none():
    data = {"x-mcp-header": "Region"}
    assert (
        header_parameters(
            {
                **schema_of(
                    a={"type": "object", "default": data, "enum": [data], "examples": [data]},
                ),
                "const": data,
            }
        )
        == ()
    )
    # A property of that name is an ordinary property.
    assert header_parameters(schema_of(**{"x-mcp-header": {"type": "string"}})) == ()


@spec("HDR-13", "HDR-14")
@pytest.mark.parametrize(
    "header", ["", " ", "a b", "a:b", "a\r\n", "ü", "a\0", None, 5, ["a"], "(x)"]
)
def test_a_header_name_is_a_token(header):
    with pytest.raises(ValueError, match="'region'"):
        header_parameters(schema_of(region=mirrored(header=header)))


@spec("HDR-13", "HDR-14")
@pytest.mark.parametrize(
    "schema",
    [
        mirrored("number"),
        mirrored("object"),
        mirrored("array"),
        mirrored("null"),
        {"type": ["string", "null"], "x-mcp-header": "Region"},
        {"x-mcp-header": "Region"},
        {"$ref": "#/$defs/a", "x-mcp-header": "Region"},
        {"anyOf": [{"type": "string"}], "x-mcp-header": "Region"},
    ],
)
def test_only_strings_integers_and_booleans_fit_a_header(schema):
    with pytest.raises(ValueError, match=r"'region'.*only string, integer and boolean"):
        header_parameters(schema_of(region=schema))


@spec("HDR-13", "HDR-14")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "x-mcp-header": "Region"},
        schema_of(a={"type": "array", "items": mirrored()}),
        schema_of(a={"type": "array", "prefixItems": [mirrored()]}),
        schema_of(a={"anyOf": [mirrored(), {"type": "null"}]}),
        schema_of(a={"oneOf": [mirrored()]}),
        schema_of(a={"allOf": [mirrored()]}),
        schema_of(a={"not": mirrored()}),
        schema_of(a={"items": schema_of(b=mirrored())}),
        schema_of(a={"additionalProperties": mirrored()}),
        {"type": "object", "patternProperties": {"^a": mirrored()}},
        {"type": "object", "if": schema_of(a=mirrored())},
        {"type": "object", "then": schema_of(a=mirrored())},
        {"type": "object", "else": schema_of(a=mirrored())},
        {"type": "object", "$defs": {"a": mirrored()}},
        {"type": "object", "dependentSchemas": {"a": schema_of(b=mirrored())}},
        {"type": "object", "anyOf": [schema_of(a=mirrored())]},
    ],
)
def test_an_annotation_elsewhere_is_refused(schema):
    with pytest.raises(ValueError, match=r"x-mcp-header on .*`properties` alone"):
        header_parameters(schema)


@spec("HDR-13", "HDR-14")
def test_two_properties_cannot_share_a_header_in_any_case():
    with pytest.raises(ValueError, match=r"'b'.*'a' has the same header name"):
        header_parameters(schema_of(a=mirrored(), b=mirrored(header="REGION")))


REGION = HeaderParameter(header="Region", path=("region",), type="string")
ZONE = HeaderParameter(header="Zone", path=("where", "zone"), type="integer")


def param_headers(**values: str) -> Headers:
    return Headers((f"mcp-param-{k}".encode(), v.encode("latin-1")) for k, v in values.items())


@spec("HDR-15", "HDR-16", "HDR-6")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu", "eu"),
        ("eu", "  eu "),
        ("", ""),
        ("ü", "=?base64?w7w=?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (0, "-0"),
        (42, "42"),
        (42, "42.0"),
        (42.0, "42"),
        (-7, "-7"),
        (-7, "=?base64?LTc=?="),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (-MAX_SAFE_INTEGER, "-9007199254740991.000"),
    ],
)
def test_an_argument_equal_to_its_header_passes(value, header):
    check_param_headers(param_headers(region=header), {"region": value}, [REGION])


@spec("HDR-15", "HDR-16", "HDR-8")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu", "EU"),
        ("eu", "\xfc"),
        ("eu", "=?base64?x?="),
        (True, "True"),
        (True, "1"),
        (1, "true"),
        (42, "42.5"),
        (42, "042"),
        (42, "+42"),
        (42, "4_2"),
        (42, "4e1"),
        (42, ""),
        (42, "forty-two"),
        (42.5, "42"),
        (MAX_SAFE_INTEGER + 1, "9007199254740992"),
        (9007199254740993.0, "9007199254740993"),
        (10**400, "1" + "0" * 400),
        (float("inf"), "1"),
        (["eu"], "eu"),
        ({"a": 1}, "eu"),
    ],
)
def test_an_argument_that_differs_from_its_header_is_a_mismatch(value, header):
    with pytest.raises(HeaderMismatch):
        check_param_headers(param_headers(region=header), {"region": value}, [REGION])


@spec("HDR-15")
def test_an_argument_without_its_header_is_a_mismatch():
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region is missing"):
        check_param_headers(param_headers(), {"region": "eu"}, [REGION])


@spec("HDR-9")
def test_a_repeated_argument_header_is_a_mismatch():
    headers = Headers([(b"mcp-param-region", b"eu"), (b"Mcp-Param-Region", b"eu")])
    with pytest.raises(HeaderMismatch, match="repeated"):
        check_param_headers(headers, {"region": "eu"}, [REGION])


@spec("HDR-15", "HDR-17")
@pytest.mark.parametrize("arguments", [{}, {"region": None}])
def test_a_header_without_its_argument_is_a_mismatch(arguments):
    check_param_headers(param_headers(), arguments, [REGION])
    with pytest.raises(HeaderMismatch, match="does not have"):
        check_param_headers(param_headers(region="eu"), arguments, [REGION])


@spec("HDR-15")
def test_a_nested_argument_is_found_by_its_path():
    check_param_headers(param_headers(zone="3"), {"where": {"zone": 3}}, [ZONE])
    check_param_headers(param_headers(), {"where": {}}, [ZONE])
    check_param_headers(param_headers(), {"where": ["zone"]}, [ZONE])
    with pytest.raises(HeaderMismatch):
        check_param_headers(param_headers(zone="4"), {"where": {"zone": 3}}, [ZONE])


@spec("HDR-17")
def test_headers_that_no_schema_names_are_ignored():
    check_param_headers(param_headers(region="eu", other="x"), {"region": "eu"}, [REGION])


ARGUMENTS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none())
)


@given(ARGUMENTS, st.binary(max_size=30))
def test_any_header_for_any_argument_passes_or_is_a_mismatch(value, header):
    headers = Headers([(b"mcp-param-region", header)])
    try:
        check_param_headers(headers, {"region": value}, [REGION])
    except HeaderMismatch:
        return
    assert value is not None


@given(st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER), st.integers(-2, 2))
def test_safe_integers_are_compared_exactly(value, distance):
    headers = param_headers(region=str(value + distance))
    if distance == 0:
        check_param_headers(headers, {"region": value}, [REGION])
    else:
        with pytest.raises(HeaderMismatch):
            check_param_headers(headers, {"region": value}, [REGION])
