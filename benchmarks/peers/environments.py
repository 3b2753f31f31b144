"""The peers' virtual environments, which are created once and kept in the cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cache import cache_directory

UVICORN = "uvicorn[standard]>=0.35"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The virtual environment of one peer."""

    name: str
    distribution: str
    """The distribution whose version the results name."""
    requirements: Sequence[str]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return cache_directory() / "peers" / self.name / "bin" / "python"

    def make(self) -> str:
        """Install missing requirements; return the version of the peer.

        Raises:
            subprocess.CalledProcessError: a requirement cannot be installed here.
        """
        if not self.python.exists():
            _run(sys.executable, "-m", "venv", str(self.python.parents[1]))
        _run(str(self.python), "-m", "pip", "install", "-q", *self.requirements)
        ask = f"from importlib.metadata import version; print(version({self.distribution!r}))"
        return _run(str(self.python), "-c", ask).strip()


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


SDK = Environment(name="sdk", distribution="mcp", requirements=("mcp>=2,<3", UVICORN))
FASTMCP = Environment(
    name="fastmcp", distribution="fastmcp", requirements=("fastmcp>=4,<5", UVICORN)
)
MCPZ = Environment(
    name="mcpz",
    distribution="django-mcpz",
    requirements=("django-mcpz>=1,<2", "django>=5.2,<6", "gunicorn>=23", UVICORN),
)
