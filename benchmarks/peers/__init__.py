"""Other servers for Python at the same job, each in a virtual environment of its own.

A module here named after a peer is imported in that peer's environment and knows nothing of this
package; ``environments`` makes those, ``compare`` drives them.
"""

from __future__ import annotations
