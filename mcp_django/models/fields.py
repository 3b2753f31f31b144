"""Columns for texts that are compared exactly, for the tenant of a row, and for its user."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models import lookups
from django.db.models.expressions import Combinable
from django.utils.translation import gettext_lazy as _

from mcp_django.tenants import MAX_LENGTH, current_tenant, has_tenant_users

if TYPE_CHECKING:
    # Generic in the stubs only; they take the types of values and lookups from it.
    _CharField = models.CharField[str | int | Combinable, str]
else:
    _CharField = models.CharField


class ExactCharField(_CharField):
    """A short text that every database compares exactly, also in unique constraints and indexes.

    ``a``, ``A``, ``á`` and ``a`` with a trailing blank are four different texts. PostgreSQL, SQLite
    and Oracle compare texts in this way by default. MariaDB and MySQL use the collation of the
    column, and their default collations treat these four texts as equal. Therefore the column has a
    binary collation without padding there (``utf8mb4_nopad_bin``; in MySQL, 8.0.17 or newer,
    ``utf8mb4_0900_bin``). Lookups that ignore case, such as the search of the admin, ignore it
    there as well.

    Use it for each text whose lookup decides something. It does not replace a digest: a secret is
    not stored as text.
    """

    def db_parameters(self, connection: Any) -> Any:
        """Return the type of the column, with the collation on MariaDB and MySQL."""
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            is_mariadb = connection.mysql_is_mariadb
            parameters["collation"] = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return parameters


class _FoldedOnMySQL:
    """A lookup that ignores case on MariaDB and MySQL, where Django leaves it to the collation."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> tuple[str, Any]:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]
        if connection.vendor == "mysql":
            sql = f"{sql} COLLATE utf8mb4_general_ci"
        return sql, params


for _lookup in (lookups.IExact, lookups.IContains, lookups.IStartsWith, lookups.IEndsWith):
    ExactCharField.register_lookup(type(_lookup.__name__, (_FoldedOnMySQL, _lookup), {}))


def tenant_column() -> Any:
    """Return the column of the tenant that a row belongs to; empty on a site without tenants.

    A row that is created during a request gets the tenant of the request.
    """
    return ExactCharField(max_length=MAX_LENGTH, blank=True, default=current_tenant, editable=False)


class UniqueByTenant(models.Model):
    """A model with columns that are unique for each tenant; forms do not show the tenant."""

    class Meta:
        abstract = True

    def validate_constraints(self, exclude: Any = None) -> None:
        """Check the constraints with the tenant, although a form has no field for it."""
        super().validate_constraints(exclude=set(exclude or ()) - {"tenant"})


class DigestField(models.CharField):  # type: ignore[type-arg]  # generic in the stubs only
    """A unique digest of several other columns, which are together too long for an index.

    It is computed when a row is saved, also by ``bulk_create``.
    """

    def __init__(self, *, of: tuple[str, ...], **options: Any) -> None:
        self.of = of
        super().__init__(**{"max_length": 64, "unique": True, "editable": False, **options})

    def deconstruct(self) -> Any:
        """Return the arguments with which a migration writes the field."""
        name, path, args, options = super().deconstruct()
        return name, path, args, {**options, "of": self.of}

    def pre_save(self, model_instance: models.Model, add: bool) -> str:  # noqa: FBT001
        """Return the digest, and set it on the row."""
        values = "\0".join(str(getattr(model_instance, name)) for name in self.of)
        digest = hashlib.sha256(values.encode()).hexdigest()
        setattr(model_instance, self.attname, digest)
        return digest


def cascade(collector: Any, field: Any, rows: Any, using: str) -> None:
    """Delete the rows of a user; if each tenant has its own users, only rows of this tenant."""
    rows = _of_this_tenant(rows)
    if collector.can_fast_delete(rows):
        # As Django does by itself for its own ``CASCADE``.
        collector.fast_deletes.append(rows)
    elif rows:
        models.CASCADE(collector, field, rows, using)


def set_null(collector: Any, field: Any, rows: Any, using: str) -> None:
    """Keep the rows of a user and set their user to ``NULL``; otherwise like ``cascade``."""
    models.SET_NULL(collector, field, _of_this_tenant(rows), using)


# Django then calls both of them before it loads the rows.
cascade.lazy_sub_objs = set_null.lazy_sub_objs = True  # type: ignore[attr-defined]


def _of_this_tenant(rows: Any) -> Any:
    # In another tenant, the same key belongs to another user.
    return rows.filter(tenant=current_tenant()) if has_tenant_users() else rows


class UserForeignKey(models.ForeignKey):  # type: ignore[type-arg]  # generic in the stubs only
    """A foreign key to the user of a row, without a reverse relation.

    The table contains the rows of all tenants. If each tenant has its own table of users, the
    database cannot check the key, so the column has no constraint.
    """

    def __init__(self, on_delete: Any = cascade, **options: Any) -> None:
        options = {"verbose_name": _("user"), "related_name": "+", **options}
        super().__init__(**{"to": settings.AUTH_USER_MODEL, **options}, on_delete=on_delete)

    @property
    def db_constraint(self) -> bool:
        """Whether the database checks the key; read when the table is created."""
        return not has_tenant_users()

    @db_constraint.setter
    def db_constraint(self, value: bool) -> None:
        pass

    def deconstruct(self) -> Any:
        """Return the arguments for a migration, which are the same on every site."""
        name, path, args, options = super().deconstruct()
        options.pop("db_constraint", None)
        return name, path, args, options
