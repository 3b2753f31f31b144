# Everything that can be known without running the code, in the environment the README line made.
set -euo pipefail

.venv/bin/pip install -q -e '.[test,lint]'
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
# What is pure is covered to the last branch, or says here what is not.
.venv/bin/python -m pytest -q -n auto tests/protocol tests/schema \
    --cov=mcp_django.protocol --cov=mcp_django.schema
