"""The demo with a theme of the admin that has templates, but no `ModelAdmin` of its own."""

from demo_project.settings import *  # noqa: F403
from demo_project.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = ["jazzmin", *APPS]
# All fields on one page, and no fonts of another site.
JAZZMIN_SETTINGS = {"changeform_format": "single", "use_google_fonts_cdn": False}
