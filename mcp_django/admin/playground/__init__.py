"""The playground *Try it*: a form for each component, its result, and its client requests.

It is a client of the server like any other, in this process (``transports.memory``): policy,
limits, approvals and the call log apply to it. Between two pages it stores nothing except signed
data in the form, and the attachments of a result for some minutes.
"""

from __future__ import annotations

from mcp_django.admin.playground import page

__all__ = ["page"]
