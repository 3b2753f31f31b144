# What the README's line had to let off, with nothing let off: other people's clients, the official
# suite, real databases, and processes that are killed.
set -euo pipefail

source .ci/node.sh
source .ci/clients.sh
source .ci/browser.sh
# Half a minute of each kind of trouble, so that each database has a minute of it.
export MCP_TEST_REQUIRE=all MCP_TEST_CHAOS_SECONDS=30
# A file stays with one worker: a server, or what a client saw of it, is there once for all its tests.
.venv/bin/python -m pytest -n auto --dist loadfile -m "requires and not alone"
# A loaded machine is no news, so what is held to a time has it to itself.
.venv/bin/python -m pytest -n 0 -m alone
