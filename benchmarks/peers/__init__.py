"""Other Python servers with the same tools, each in its own virtual environment.

A module named after a peer is imported in that peer's environment and does not import this
package. ``environments`` creates the environments, ``compare`` runs the benchmarks.
"""

from __future__ import annotations
