"""The site as it is asked and as it answers: what views, REST views and the admin have in common.

A call is a fresh request of the caller through the site's own middleware; what comes back is read
as far as it is of use, and becomes the result of a tool, a resource or a prompt.
"""

from __future__ import annotations
