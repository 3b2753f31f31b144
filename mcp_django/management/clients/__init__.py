"""How clients are told of a server: their configuration files, commands and habits.

Nothing here needs Django, a request or a command line.
"""

from __future__ import annotations
