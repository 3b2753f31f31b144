"""What the admin exposes of the site: models and views, by the very classes that code uses."""

from __future__ import annotations

from mcp_django.managed.exposures.building import Built, Problem, build, built, with_exposed
from mcp_django.managed.exposures.spec import ExposureSpec, spec_of

__all__ = ["Built", "ExposureSpec", "Problem", "build", "built", "spec_of", "with_exposed"]
