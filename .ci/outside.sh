# What the fast ring left out, with nothing let off: the other mounts, processes, PostgreSQL, Redis,
# trouble, other people's clients, the official suite, Chromium, documentation, Hypothesis at full size.
set -euo pipefail

.venv/bin/pip install -q -e '.[test,outside]'
source .ci/node.sh
source .ci/clients.sh
source .ci/browser.sh
export MCP_TEST_REQUIRE=all
# A file stays with one worker: a server, or what a client saw of it, is there once for all its tests.
.venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --ring=outside --passed="$WORK/passed-outside"
if [ -f "$WORK/passed-fast" ]; then
    .venv/bin/python -m tests.spec --passed "$WORK"/passed-*
fi
