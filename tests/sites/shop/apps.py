"""The shop's application; its tables refer to those of others, so it has migrations as they do."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Named in full so that its label does not depend on where the tests are run from."""

    name = "tests.sites.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
