"""What the site offers."""

from mcp_django import mcp
from mcp_django.integrations.wagtail import PageTools
from tests.sites.wagtail.models import Recipe

WRITTEN = ["title", "slug", "introduction", "body", "text", "ingredients", "tags"]


@mcp.register(Recipe)
class RecipeTools(PageTools[Recipe]):
    """Recipes of the bakery."""

    fields = ["id", *WRITTEN, "live", "has_unpublished_changes", "links__url", "links__title"]
    write_fields = WRITTEN
    search_fields = ["title", "introduction"]
    tools = ["list", "get", "create", "update", "delete"]
    page_actions = ["publish", "unpublish"]
