# What can be known without running the code, in the environment that README's line made.
set -euo pipefail

.venv/bin/pip install -q -e '.[test,outside,lint]'
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
