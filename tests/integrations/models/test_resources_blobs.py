"""The files of an object as resources."""

from __future__ import annotations

import logging
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, SuspiciousFileOperation
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage
from django.db.models import QuerySet

from mcp_django import Context
from mcp_django.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import product
from tests.integrations.models.offering import offer, reader
from tests.sites.shop.models import Product

pytestmark = pytest.mark.django_db

PHOTO = "shop://p/ball/photo"
NOT_FOUND = "Resource not found; see resources/list and resources/templates/list."


@pytest.fixture(autouse=True)
def _files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path


def products(**options: Any) -> MCPClient:
    """Return a client of a server with products and their photos."""
    fields = ["slug", "photo", "manual"]
    return reader(
        Product, **{"uri": "shop://p/{slug}", "fields": fields, "blobs": ["photo"], **options}
    )


def ball(name: str = "ball.png", content: bytes = b"\x89PNG", field: str = "photo") -> Product:
    """Return a product with a file."""
    made = product(slug="ball")
    getattr(made, field).save(name, ContentFile(content))
    return made


def failure(client: MCPClient, uri: str = PHOTO) -> tuple[int, str]:
    with pytest.raises(ErrorResponse) as caught:
        client.read_resource(uri)
    return caught.value.code, caught.value.message


def test_a_file_is_a_blob_of_its_own():
    ball()
    client = products()
    (contents,) = client.read_resource(PHOTO)
    assert (contents["uri"], contents["mimeType"]) == (PHOTO, "image/png")
    assert b64decode(contents["blob"]) == b"\x89PNG"


def test_its_template_says_what_it_is_and_how_large_it_may_be():
    templates = {
        template["name"]: template
        for template in products(max_blob_bytes=5).list_resource_templates()
    }
    assert templates["product_photo"] == {
        "uriTemplate": "shop://p/{slug}/photo",
        "name": "product_photo",
        "title": "Product: photo",
        "description": "The file 'photo'. For one product; at most 5 bytes.",
    }
    assert templates.keys() == {"product", "product_photo"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text/plain"),
        ("a.PDF", "application/pdf"),
        ("a.tar.gz", "application/gzip"),
        ("a.txt.br", "application/octet-stream"),
        ("a", "application/octet-stream"),
        ("a.unknown", "application/octet-stream"),
    ],
)
def test_the_kind_is_what_the_stored_name_says(name, kind):
    ball(name, b"x", field="manual")
    (contents,) = products(blobs=["manual"]).read_resource("shop://p/ball/manual")
    assert (contents["mimeType"], b64decode(contents["blob"])) == (kind, b"x")


def test_an_empty_file_is_empty():
    ball(content=b"")
    (contents,) = products().read_resource(PHOTO)
    assert contents["blob"] == ""


@pytest.mark.parametrize("size", [4, 5, 6, 500])
def test_a_file_over_the_limit_is_refused_with_both_numbers(size):
    ball(content=b"x" * size)
    client = products(max_blob_bytes=5)
    if size <= 5:
        assert client.read_resource(PHOTO)
        return
    assert failure(client) == (
        INVALID_PARAMS,
        f"The photo of this product has {size} bytes; at most 5 can be read.",
    )


def test_a_storage_that_says_too_little_is_not_believed(monkeypatch):
    ball(content=b"x" * 500)
    monkeypatch.setattr(FileSystemStorage, "size", lambda self, name: 1)
    assert "has 6 bytes" in failure(products(max_blob_bytes=5))[1]


def test_what_is_not_there_is_not_found():
    made = product(slug="ball")
    client = products()
    missing = (INVALID_PARAMS, NOT_FOUND)
    assert failure(client) == missing
    assert failure(client, "shop://p/other/photo") == missing
    assert failure(client, "shop://p/ball/manual") == missing
    assert failure(client, "shop://p/ball/photo/x") == missing
    made.photo.save("ball.png", ContentFile(b"x"))
    Path(made.photo.path).unlink()
    assert failure(client) == missing


def test_a_file_of_a_row_outside_the_gate_is_not_found():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Product]:
        return Product.objects.exclude(slug="ball")

    ball()
    assert failure(products(get_queryset=get_queryset)) == (INVALID_PARAMS, NOT_FOUND)


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (OSError("s3://secret"), INTERNAL_ERROR),
        (RuntimeError("secret"), INTERNAL_ERROR),
        (SuspiciousFileOperation("secret"), INVALID_PARAMS),
    ],
)
def test_a_storage_that_fails_is_logged_and_says_nothing(exc, code, monkeypatch, caplog):
    def fail(self: Storage, *args: Any) -> Any:
        raise exc

    ball()
    monkeypatch.setattr(FileSystemStorage, "_open", fail)
    with caplog.at_level(logging.WARNING):
        error = failure(products())
    assert error[0] == code
    assert "secret" not in error[1]
    assert "secret" in caplog.text


def test_the_file_is_closed(monkeypatch):
    ball()
    opened: list[Any] = []
    real = FileSystemStorage._open

    def keep(self: Any, name: str, mode: str = "rb") -> Any:
        opened.append(real(self, name, mode))
        return opened[-1]

    monkeypatch.setattr(FileSystemStorage, "_open", keep)
    products().read_resource(PHOTO)
    assert [file.closed for file in opened] == [True]


def test_the_object_names_the_file_and_does_not_hold_it():
    ball()
    (contents,) = products().read_resource("shop://p/ball")
    assert "PNG" not in contents["text"]
    assert "photos/ball" in contents["text"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"blobs": ["foto"]},
            "blobs has 'foto', which is not a file field in fields; did you mean 'photo'",
        ),
        ({"blobs": ["slug"]}, "blobs has 'slug'"),
        ({"blobs": ["photo"], "fields": ["slug"]}, "valid names: none"),
        ({"blobs": "photo"}, "write blobs = ['photo']"),
        ({"max_blob_bytes": 0}, "max_blob_bytes=0 is not valid; write a number of bytes."),
        ({"max_blob_bytes": "1 MB"}, "write a number of bytes"),
        ({"max_blob_bytes": True}, "write a number of bytes"),
    ],
)
def test_blobs_that_cannot_be_are_refused(options, words):
    base = {"uri": "shop://p/{slug}", "fields": ["slug", "photo"]}
    with pytest.raises(ImproperlyConfigured) as caught:
        offer(Product, **{**base, **options})
    assert words in str(caught.value)
