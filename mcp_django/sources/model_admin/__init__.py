"""The site's own admin as a source: what it shows, finds, allows, writes and does with a model.

Nothing here is imported before it is used, as a site may have no admin.
"""

from __future__ import annotations
