# Static checks, in the virtual environment that the line in README.md created.
set -euo pipefail

.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/lint-imports
