"""Two shops that look the same from outside, and differ in everything that is hidden."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from tests.sites.shop.models import Category, Customer, Order, OrderLine, Passport, Product, Tag

MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TEXTS = ["", "a", "b", "secret", "%", "ä", "x" * 150]
VISIBLE = range(100, 109)


@dataclass(frozen=True)
class World:
    """Creates the rows of one shop; shops with one ``same`` and different ``own`` look alike."""

    fields: frozenset[str]
    same: int
    own: int

    def by(self, path: str, key: object) -> Random:
        """Return the random numbers for a value: shared, if anything on its path is exposed."""
        known = any(
            field in {path, f"{path}_id"} or field.startswith(f"{path}__") for field in self.fields
        )
        return Random(f"{self.same if known else self.own}:{path}:{key}")

    def secret(self, what: str, key: object) -> Random:
        """Return the random numbers for a value that is never exposed."""
        return Random(f"{self.own}:{what}:{key}")

    def fill(self) -> None:
        """Create every row."""
        for key in (1, 2, 3):
            self._customer(key)
        kind = Category.objects.create(code="x", title=str(self.secret("title", 0).random()))
        for key in (1, 2, 3):
            self._product(key, kind)
        for number, key in enumerate(VISIBLE):
            made = self._order(key, f"N{number}", self.secret("margin", key).randrange(100))
            for nth in range(self.by("lines", key).randrange(3)):
                self._line(made, key * 10 + nth)
        chance = self.secret("outside", 0)
        for key in chance.sample([*range(50, 100), *range(150, 200)], chance.randrange(6)):
            made = self._order(key, f"H{key}", -1)
            for nth in range(chance.randrange(3)):
                self._line(made, key * 10 + nth)

    def _customer(self, key: int) -> None:
        Customer.objects.create(
            pk=key,
            name=self.by("customer__name", key).choice(["Ada", "Bob", "Eve"]),
            email=f"{self.by('customer__email', key).random()}@shop.test",
            password=self.secret("password", key).choice(TEXTS)[:100],
        )
        Passport.objects.create(
            pk=key,
            customer_id=key,
            country=self.by("customer__passport__country", key).choice(["DE", "FR"]),
            number=str(self.secret("passport", key).random())[:20],
        )

    def _product(self, key: int, kind: Category) -> None:
        made = Product.objects.create(
            pk=key,
            slug=f"p{self.secret('slug', key).random()}",
            name=self.by("lines__product__name", key).choice(["Ball", "Doll", "Top"]),
            category=kind,
            price=Decimal(self.by("lines__product__price", key).randrange(100)),
            margin=self.secret("margin", key).randrange(100),
        )
        word = self.by("lines__product__tags__word", key).choice(["red", "blue"])
        hidden = self.secret("tag", key).choice(TEXTS)[:30]
        tag = Tag.objects.create(pk=key, word=f"{word}{key}", secret=hidden)
        if self.by("lines__product__tags", key).random() < 0.5:
            made.tags.add(tag)

    def _order(self, key: int, number: str, margin: int) -> Order:
        shown = "number" in self.fields
        hours = dt.timedelta(hours=self.by("placed_at", key).randrange(3))
        return Order.objects.create(
            pk=key,
            number=number if shown else f"{self.secret('number', key).random()}"[:20],
            status=self.by("status", key).choice(["open", "paid", "shipped"]),
            customer_id=self.by("customer", key).randrange(1, 4),
            total=Decimal(self.by("total", key).randrange(4)) / 2,
            placed_at=MOMENT + hours,
            paid_at=self.by("paid_at", key).choice([None, MOMENT, MOMENT + dt.timedelta(1)]),
            note=self.by("note", key).choice(TEXTS),
            internal_note=self.secret("note", key).choice(TEXTS),
            margin=margin,
        )

    def _line(self, made: Order, key: int) -> None:
        OrderLine.objects.create(
            pk=key,
            order=made,
            product_id=self.by("lines__product", key).randrange(1, 4),
            quantity=self.by("lines__quantity", key).randrange(3),
            price=Decimal(self.by("lines__price", key).randrange(9)),
            secret=self.secret("line", key).choice(TEXTS)[:30],
        )


def attacks(fields: frozenset[str], chance: Random) -> list[tuple[str, dict[str, Any]]]:
    """Return calls that use exposed fields, and calls that use hidden ones."""
    values: list[Any] = [*TEXTS, "open", "N1", "H60", "Ada", 1, 2, 60, 100, True, None, ["open"]]
    values += ["2026-01-01T00:00:00Z", "0.5", [1, 2, 60], {"x": 1}, "\0", 2**70, "NaN"]
    hidden = [
        *("password", "customer__password", "customer__password__startswith", "pk", "pk__in"),
        *("customer__user__password__startswith", "internal_note__icontains", "margin__gte"),
        *("id__in", "number__regex", "lines__secret", "lines__product__margin__gt", "Q", "using"),
        *("lines__product__category__title", "customer__passport__number", "_state", "ctx_"),
    ]
    orders = ["margin", "-margin", "pk", "?", "customer__password", "internal_note", *fields]
    calls: list[tuple[str, dict[str, Any]]] = [("list_orders", {}), ("count_orders", {})]
    for text in TEXTS:
        calls += [("list_orders", {"search": text}), ("count_orders", {"search": text})]
    for name in orders:
        for sign in ("", "-"):
            calls.append(("list_orders", {"order_by": f"{sign}{name}", "limit": 2}))
        calls.append(("count_orders", {"group_by": name, "max_of": name}))
        calls += [("count_orders", {f"{kind}_of": name}) for kind in ("sum", "avg", "min", "max")]
    lookups = ["", "__gte", "__lt", "__icontains", "__startswith", "__in", "__isnull", "__regex"]
    names = [f"{name}{lookup}" for name in fields for lookup in lookups]
    for name in [*hidden, *chance.sample(names, min(len(names), 20))]:
        given = {name: chance.choice(values)}
        calls += [("list_orders", given), ("count_orders", given), ("get_order", given)]
    for key in ("N1", "H60", "H160", 60, 100, 160, "60"):
        calls += [("get_order", {name: key}) for name in ("number", "id", "pk")]
    calls += [("list_orders", {"cursor": text}) for text in ("", "x", "e30=:x", "\0")]
    return calls
