"""Trees of two packages, and pages with everything that a page of Wagtail has."""

from __future__ import annotations

from django.db import models
from modelcluster.contrib.taggit import ClusterTaggableManager
from modelcluster.fields import ParentalKey, ParentalManyToManyField
from mptt.models import MPTTModel, TreeForeignKey
from taggit.managers import TaggableManager
from taggit.models import TaggedItemBase
from treebeard.mp_tree import MP_Node
from treebeard.ns_tree import NS_Node
from wagtail import blocks
from wagtail.admin.panels import FieldPanel, InlinePanel
from wagtail.fields import RichTextField, StreamField
from wagtail.models import Orderable, Page


class Category(MP_Node):
    """A tree with paths."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Shelf(NS_Node):
    """A tree of nested sets."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Genre(MPTTModel):
    """A tree of the other package."""

    name = models.CharField(max_length=50)
    parent = TreeForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")

    def __str__(self) -> str:
        return self.name


class Bread(models.Model):
    """What hangs on a tree, with tags."""

    name = models.CharField(max_length=50)
    category = models.ForeignKey(Category, models.CASCADE)
    tags = TaggableManager(blank=True)

    def __str__(self) -> str:
        return self.name


class Ingredient(models.Model):
    """A snippet."""

    name = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.name


class RecipeTag(TaggedItemBase):
    """A tag of a page."""

    content_object = ParentalKey("Recipe", on_delete=models.CASCADE, related_name="tagged_items")


class Recipe(Page):
    """A page with every kind of field."""

    introduction = models.CharField(max_length=250, blank=True)
    body = StreamField(
        [
            ("heading", blocks.CharBlock()),
            ("paragraph", blocks.RichTextBlock()),
            (
                "step",
                blocks.StructBlock(
                    [("text", blocks.CharBlock()), ("minutes", blocks.IntegerBlock(min_value=0))]
                ),
            ),
        ],
        blank=True,
    )
    text = RichTextField(blank=True)
    ingredients = ParentalManyToManyField(Ingredient, blank=True)
    tags = ClusterTaggableManager(through=RecipeTag, blank=True)

    content_panels = [
        *Page.content_panels,
        *map(FieldPanel, ["introduction", "body", "text", "ingredients", "tags"]),
        InlinePanel("links"),
    ]


class Link(Orderable):
    """A row of a page."""

    page = ParentalKey(Recipe, on_delete=models.CASCADE, related_name="links")
    url = models.URLField()
    title = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return self.title
