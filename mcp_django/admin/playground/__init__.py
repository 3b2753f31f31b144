"""Try it: a form for each component, its answer, and whatever it asks on the way.

It is a client of the server like any other, in this process (transports.memory): policy, limits,
approvals and the call log hold for it. Nothing of it is kept between two pages but under a
signature in the form, and the pictures of an answer for some minutes.
"""

from __future__ import annotations

from mcp_django.admin.playground import page

__all__ = ["page"]
