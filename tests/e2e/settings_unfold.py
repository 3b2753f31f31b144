"""The demo with another theme of the admin, which writes styles into its pages."""

from demo_project.settings import *  # noqa: F403
from demo_project.settings import INSTALLED_APPS as APPS, MCP_DJANGO as DEMO

INSTALLED_APPS = ["unfold", *APPS]
MCP_DJANGO = {**DEMO, "ADMIN_BASE_CLASS": "unfold.admin.ModelAdmin"}
