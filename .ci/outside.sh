# The whole suite with nothing let off: other people's clients drive the server from other processes.
set -euo pipefail

node_major() {
    node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/'
}

major=$(node_major)
if [ "${major:-0}" -lt 22 ]; then
    npm install --silent --no-audit --no-fund --prefix "$CACHE/node" node@22
    export PATH="$CACHE/node/node_modules/node/bin:$PATH"
fi
echo "-- node $(node --version)"
MCP_TEST_REQUIRE=all .venv/bin/python -m pytest --cov
