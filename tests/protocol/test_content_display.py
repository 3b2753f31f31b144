"""Annotations and icons."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mcp_django.protocol.content import Annotations, Icon
from tests.spec import spec


@spec("UIX-4")
def test_annotations_write_what_is_set():
    assert Annotations().to_wire() == {}
    assert Annotations(
        audience=("user", "assistant"), priority=0, last_modified="2025-01-12T15:00:58Z"
    ).to_wire() == {
        "audience": ["user", "assistant"],
        "priority": 0,
        "lastModified": "2025-01-12T15:00:58Z",
    }


@spec("UIX-4")
@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2025, 1, 12, 15, 0, 58, tzinfo=UTC), "2025-01-12T15:00:58Z"),
        (
            datetime(2025, 1, 12, 15, 0, 58, tzinfo=timezone(timedelta(hours=2))),
            "2025-01-12T15:00:58+02:00",
        ),
        # A site without time zones sends naive times.
        (datetime(2025, 1, 12, 15, 0, 58), "2025-01-12T15:00:58"),  # noqa: DTZ001
    ],
)
def test_a_moment_is_written_in_iso_8601(moment, text):
    assert Annotations(last_modified=moment).to_wire() == {"lastModified": text}


@spec("UIX-4")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"audience": ("system",)}, "'user' or 'assistant', not 'system'"),
        ({"audience": "user"}, "tuple of strings"),
        ({"priority": 1.1}, "between 0 and 1"),
        ({"priority": -0.1}, "between 0 and 1"),
        ({"priority": float("nan")}, "between 0 and 1"),
        ({"last_modified": "yesterday"}, "ISO 8601"),
    ],
)
def test_annotations_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Annotations(**wrong)


@spec("UIX-1", "UIX-2")
def test_an_icon_writes_what_is_set():
    assert Icon("/static/logo.svg").to_wire() == {"src": "/static/logo.svg"}
    assert Icon(
        "https://shop.example/logo.png",
        mime_type="image/png",
        sizes=("48x48", "any"),
        theme="dark",
    ).to_wire() == {
        "src": "https://shop.example/logo.png",
        "mimeType": "image/png",
        "sizes": ["48x48", "any"],
        "theme": "dark",
    }


@spec("UIX-2")
@pytest.mark.parametrize("src", ["data:image/png;base64,AA==", "HTTPS://shop.example/x", "/"])
def test_an_icon_comes_from_https_or_data_or_this_site(src):
    assert Icon(src).to_wire() == {"src": src}


@spec("UIX-2")
@pytest.mark.parametrize(
    "src",
    [
        "http://shop.example/x.png",
        "//evil.example/x.png",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "logo.png",
        "",
        " https://shop.example/x.png",
    ],
)
def test_another_source_is_refused(src):
    with pytest.raises(ValueError, match="src"):
        Icon(src)


@spec("UIX-1")
@pytest.mark.parametrize(
    "wrong",
    [
        {"sizes": "48x48"},
        {"sizes": ("48",)},
        {"sizes": ("0x0",)},
        {"sizes": ("48X48",)},
        {"theme": "blue"},
    ],
)
def test_an_icon_with_another_size_or_theme_is_refused(wrong):
    with pytest.raises(ValueError, match=r"size|theme"):
        Icon("/x.png", **wrong)
