# Sourced. Installs what the tests with third-party programs need: Node 22 on PATH, the pinned
# conformance suite in the cache, and nginx.
export CACHE=${CACHE:-$PWD/.ci/cache}

major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/' || true)
if [ "${major:-0}" -lt 22 ]; then
    npm install --silent --no-audit --no-fund --prefix "$CACHE/node" node@22
    export PATH="$CACHE/node/node_modules/node/bin:$PATH"
fi
echo "-- node $(node --version)"

export MCP_TEST_CONFORMANCE=$CACHE/conformance
mkdir -p "$MCP_TEST_CONFORMANCE"
cp tests/conformance/package.json tests/conformance/package-lock.json "$MCP_TEST_CONFORMANCE"
npm ci --silent --no-audit --no-fund --prefer-offline --prefix "$MCP_TEST_CONFORMANCE"

if ! command -v nginx >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq --no-install-recommends nginx-light >/dev/null 2>&1 || true
fi
