"""REST framework views as tools: the view itself runs, with a new request of the caller.

REST framework is optional and cannot be imported before the settings are configured, so the
modules of this package are imported only when they are first used.
"""

from __future__ import annotations
