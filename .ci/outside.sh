# Everything that the fast ring left out, without skipping any test: the other mounts, processes,
# PostgreSQL, Redis, failures, third-party clients, the official conformance suite, Chromium, the
# documentation, and Hypothesis at full size. What is heavy takes turns.
set -euo pipefail

source .ci/node.sh
source .ci/clients.sh
source .ci/browser.sh
export MCP_TEST_REQUIRE=all
# Each file runs on one worker, so that its tests share one server and one client run.
.venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --ring=outside --turn="$TURN" \
    --passed="$WORK/passed-outside"
