"""REST framework's views as tools: the real view runs, with a request of its own.

REST framework is optional and cannot be imported before settings exist, so nothing outside of this
package imports it.
"""

from __future__ import annotations
